package etcd_test

import (
	"fmt"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// BenchmarkUpdate measures an update with a resource version: through the store that
// wrote the object, which need not read it, and through two stores in turn, which must.
func BenchmarkUpdate(b *testing.B) {
	for name, client := range clients(b) {
		for replicas, stores := range map[string][]*etcd.Store{
			"one store":          {open(b, client)},
			"two stores in turn": {open(b, client), open(b, client)},
		} {
			b.Run(name+"/"+replicas, func(b *testing.B) {
				b.ReportAllocs()
				object := large(strings.ReplaceAll(replicas, " ", "-"), 0)
				version, err := stores[0].Create(b.Context(), object)
				for round := int64(1); b.Loop() && err == nil; round++ {
					object = large(object.Name, round)
					object.ResourceVersion = version
					version, err = stores[round%int64(len(stores))].Update(b.Context(), object)
				}
				if err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}

func BenchmarkCodec(b *testing.B) {
	object, id, schemas := large("e", 1), make([]byte, 16), schema.Pilot()
	value, err := etcd.Encode(object, id)
	if err != nil {
		b.Fatal(err)
	}
	b.Run(fmt.Sprintf("encode %d bytes", len(value)), func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, err = etcd.Encode(object, id)
		}
	})
	kv := &mvccpb.KeyValue{Key: []byte(etcd.ConfigKey(object.Key())), Value: value, ModRevision: 1}
	var decoded *config.Config
	b.Run(fmt.Sprintf("decode %d bytes", len(value)), func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			decoded, err = etcd.Decode(kv, schemas, "cluster.local")
		}
	})
	if err != nil || decoded.Name != object.Name {
		b.Fatal(decoded, err)
	}
}

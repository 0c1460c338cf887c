package mirror_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/portolan-mesh/portolan/cache/cachetest"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// paged is a client of an etcd without range streams.
type paged struct{ clientv3.KV }

// GetStream implements clientv3.KV.
func (paged) GetStream(context.Context, string, ...clientv3.OpOption) (clientv3.GetStreamChan, error) {
	return nil, status.Error(codes.Unimplemented, "of an older server")
}

// plain lists by stream, decodes on all cores, and keeps nothing but the objects: no
// cold cache can be faster.
func plain(b *testing.B, client *clientv3.Client, decode bool) (bytes, objects int) {
	chunks, err := client.GetStream(b.Context(), etcd.MeshPrefix, clientv3.WithPrefix())
	if err != nil {
		b.Fatal(err)
	}
	schemas := schema.Pilot()
	work := make(chan []*mvccpb.KeyValue, 64)
	var group sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			var kept []*config.Config
			defer func() { runtime.KeepAlive(kept) }()
			for kvs := range work {
				for _, kv := range kvs {
					if !decode {
						continue
					}
					object, err := etcd.Decode(kv, schemas, "")
					if err != nil {
						b.Error(err)
					}
					kept = append(kept, object)
				}
			}
		})
	}
	for chunk := range chunks {
		if err := chunk.Err(); err != nil {
			b.Fatal(err)
		}
		for _, kv := range chunk.Kvs {
			bytes += len(kv.Key) + len(kv.Value)
		}
		objects += len(chunk.Kvs)
		work <- chunk.Kvs
	}
	close(work)
	group.Wait()
	return bytes, objects
}

// BenchmarkColdSync is the first list over a socket, from an empty cache to HasSynced,
// compared with the plain client loop.
func BenchmarkColdSync(b *testing.B) {
	for _, n := range []int{10_000, 100_000} {
		endpoint := etcdtest.Listen(b)
		client := etcdtest.Dial(b, endpoint)
		filled := cachetest.NewRig(b, subject(b, client, client))
		filled.Fill(n)
		store := filled.Store.(*etcd.Store)
		older := etcdtest.Dial(b, endpoint)
		older.KV = paged{older.KV}
		for _, way := range []struct {
			name   string
			client *clientv3.Client
		}{{"stream", client}, {"pages", older}} {
			b.Run(fmt.Sprintf("%s/%d", way.name, n), func(b *testing.B) {
				b.ReportAllocs()
				var cold, floor time.Duration
				for b.Loop() {
					b.StopTimer()
					started := time.Now()
					plain(b, client, true) // just before, under the same load
					floor += time.Since(started)
					b.StartTimer()
					started = time.Now()
					r := cachetest.NewRig(b, over(way.client, store))
					stop := r.Launch()
					r.Await("1") // without spinning
					r.Eventually("HasSynced", r.Cache.HasSynced)
					b.StopTimer()
					cold += time.Since(started)
					if got := r.Cache.Snapshot().Configs().Len(); got != n {
						b.Fatalf("%d objects", got)
					}
					stop()
					b.StartTimer()
				}
				b.ReportMetric(float64(cold)/float64(floor), "x-plain-list-and-decode")
			})
		}
		for name, decode := range map[string]bool{"plain list": false, "plain list and decode": true} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				b.ReportAllocs()
				size := 0
				for b.Loop() {
					size, _ = plain(b, client, decode)
				}
				b.ReportMetric(float64(size)/float64(n), "bytes/object")
			})
		}
	}
}

// BenchmarkMemory reports the memory of a cached object.
func BenchmarkMemory(b *testing.B) {
	const n = 100_000
	endpoint := etcdtest.Listen(b)
	client := etcdtest.Dial(b, endpoint)
	filled := cachetest.NewRig(b, subject(b, client, client))
	filled.Fill(n)
	compact(b, client)
	for b.Loop() {
		before := heap()
		r := cachetest.NewRig(b, over(client, filled.Store.(*etcd.Store)))
		stop := r.Start()
		b.ReportMetric(float64(heap()-before)/n, "bytes/object")
		stop()
		runtime.KeepAlive(r)
	}
}

// BenchmarkCheck compares a cache with its store.
func BenchmarkCheck(b *testing.B) {
	const n = 100_000
	endpoint := etcdtest.Listen(b)
	client := etcdtest.Dial(b, endpoint)
	r := cachetest.NewRig(b, subject(b, client, client))
	r.Fill(n)
	r.Start()
	for name, values := range map[string]bool{"keys": false, "values": true} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := mirrorOf(r).Compare(b.Context(), values); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

package statuses

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/status"
)

// callTimeout bounds reading one page.
const callTimeout = 10 * time.Second

// list reads all facts, as of one revision.
func (c *Cache) list(ctx context.Context) (*Reports, error) {
	facts := &Reports{}
	header, err := etcd.Range{Prefix: etcd.StatusPrefix}.Pages(ctx, c.get, func(page []*mvccpb.KeyValue) error {
		for _, kv := range page {
			c.put(facts, kv)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", etcd.StatusPrefix, err)
	}
	facts.Revision = header.Revision
	return facts, nil
}

// get reads one page.
func (c *Cache) get(ctx context.Context, from string, options ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return c.client.Get(ctx, from, options...)
}

// parts are the fields of Reports, Statuses in two halves. A new one needs a field of Reports and
// an entry here.
var parts = []part{
	halfOf(etcd.ObjectStatusPrefix, etcd.DecodeStatus, (*status.Report).WithServers),
	halfOf(etcd.ClientStatusPrefix, etcd.DecodeClientStatus, (*status.Report).WithClients),
	partOf(etcd.ReplicaPrefix, func(f *Reports) *pmap.Map[*status.Replica] { return &f.Replicas },
		func(kv *mvccpb.KeyValue, _ schema.Set) (*status.Replica, error) { return etcd.DecodeReplica(kv) }),
	partOf(etcd.UsePrefix, func(f *Reports) *pmap.Map[*status.Use] { return &f.Uses },
		func(kv *mvccpb.KeyValue, _ schema.Set) (*status.Use, error) { return etcd.DecodeUse(kv) }),
	partOf(etcd.SourcesPrefix, func(f *Reports) *pmap.Map[*status.Sources] { return &f.Sources },
		func(kv *mvccpb.KeyValue, _ schema.Set) (*status.Sources, error) { return etcd.DecodeSources(kv) }),
	partOf(etcd.ContentPrefix, func(f *Reports) *pmap.Map[*status.Content] { return &f.Contents },
		func(kv *mvccpb.KeyValue, _ schema.Set) (*status.Content, error) { return etcd.DecodeContent(kv) }),
	partOf(etcd.ProxyPrefix, func(f *Reports) *pmap.Map[*status.Proxy] { return &f.Proxies },
		func(kv *mvccpb.KeyValue, _ schema.Set) (*status.Proxy, error) { return etcd.DecodeProxy(kv) }),
}

// part is one map of Reports and the prefix under which etcd holds it.
type part struct {
	prefix string
	put    func(f *Reports, kv *mvccpb.KeyValue, schemas schema.Set) error
	remove func(f *Reports, key string)
}

func partOf[V comparable](prefix string, rows func(*Reports) *pmap.Map[V], decode func(*mvccpb.KeyValue, schema.Set) (V, error)) part {
	return part{
		prefix: prefix,
		put: func(f *Reports, kv *mvccpb.KeyValue, schemas schema.Set) error {
			value, err := decode(kv, schemas)
			if err == nil {
				*rows(f) = rows(f).Set(string(kv.Key[len(prefix):]), value)
			}
			return err
		},
		remove: func(f *Reports, key string) { *rows(f) = rows(f).Delete(key[len(prefix):]) },
	}
}

// halfOf is partOf for one half of the statuses of objects. with returns a status with another
// half, nil for none.
func halfOf[V any](prefix string, decode func(*mvccpb.KeyValue, schema.Set) (*V, error), with func(*status.Report, *V) *status.Report) part {
	put := func(f *Reports, path string, half *V) {
		if next := with(f.Statuses.Value(path), half); next != nil {
			f.Statuses = f.Statuses.Set(path, next)
		} else {
			f.Statuses = f.Statuses.Delete(path)
		}
	}
	return part{
		prefix: prefix,
		put: func(f *Reports, kv *mvccpb.KeyValue, schemas schema.Set) error {
			half, err := decode(kv, schemas)
			if err == nil {
				put(f, string(kv.Key[len(prefix):]), half)
			}
			return err
		},
		remove: func(f *Reports, key string) { put(f, key[len(prefix):], nil) },
	}
}

// partAt returns false for a key of no part.
func partAt(key string) (part, bool) {
	for _, p := range parts {
		if strings.HasPrefix(key, p.prefix) {
			return p, true
		}
	}
	return part{}, false
}

// If the value cannot be decoded, the previous one stays.
func (c *Cache) put(f *Reports, kv *mvccpb.KeyValue) {
	p, ok := partAt(string(kv.Key))
	if !ok {
		return
	}
	if err := p.put(f, kv, c.o.Schemas); err != nil {
		c.o.Log.Debug("a status in etcd cannot be read, it is passed over", "err", err)
	}
}

func remove(f *Reports, key string) {
	if p, ok := partAt(key); ok {
		p.remove(f, key)
	}
}

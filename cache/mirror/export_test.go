package mirror

import (
	"context"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portolan-mesh/portolan/cache"
)

// Compare is one check.
func (c *Cache) Compare(ctx context.Context, values bool) error { return c.compare(ctx, values) }

// Begin takes a list: the keys of etcd at a revision, in key order.
func (c *Cache) Begin(revision int64, kvs []*mvccpb.KeyValue) {
	var read listing
	read.take(func(yield func(entry) bool) {
		for _, kv := range kvs {
			if e, ok := c.read(kv, &cache.Content{}); ok {
				yield(e)
			}
		}
	}, c.quarantineEntry)
	c.versions.replace(read.entries)
	c.Replace((*cache.Snapshot)(nil).Next(revision, read.content()))
}

// Receive handles one response of a watch.
func (c *Cache) Receive(ctx context.Context, r *clientv3.WatchResponse) error {
	return c.receive(ctx, r)
}

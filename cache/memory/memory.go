// Package memory is the cache of a store in memory, for tests. Each revision of the store
// becomes a snapshot, whether the write came through the cache or not.
package memory

import (
	"context"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/memory"
)

// Options configure a Cache.
type Options struct {
	// Worker runs the handlers. It is required.
	Worker *cache.Worker
	// History is how many snapshots the cache keeps for followers; 0 is
	// cache.DefaultHistory.
	History int
}

// Cache is a cache.ConfigStoreCache over a memory store. Mutations go to the
// store and show in the cache soon after.
type Cache struct {
	*cache.Feed
	store *memory.Store
}

var (
	_ cache.ConfigStoreCache = (*Cache)(nil)
	_ storage.Batcher        = (*Cache)(nil)
)

// New returns a cache that waits for Run.
func New(store *memory.Store, o Options) *Cache {
	return &Cache{
		Feed: cache.NewFeed(cache.FeedOptions{
			Worker: o.Worker, Schemas: store.Schemas(), Store: store, History: o.History,
		}),
		store: store,
	}
}

// Run keeps the cache equal to the store until ctx ends, and then returns nil.
func (c *Cache) Run(ctx context.Context) error {
	if err := c.Seal(); err != nil {
		return err
	}
	for {
		changed := c.store.Changed()
		c.advance()
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

// advance publishes every revision that the cache lacks, one by one while the store
// still has them, else the newest.
func (c *Cache) advance() {
	newest, content := c.store.Snapshot()
	next := c.Snapshot().Revision() + 1
	if c.Snapshot() == nil {
		next = newest + 1
		c.Replace(snapshot(newest, content))
	}
	for ; next <= newest; next++ {
		then, ok := c.store.SnapshotAt(next)
		if !ok {
			c.Replace(snapshot(newest, content))
			return
		}
		c.Publish(snapshot(next, then))
	}
}

func snapshot(revision int64, content memory.Content) *cache.Snapshot {
	return (*cache.Snapshot)(nil).Next(revision, cache.Content{Configs: content.Configs, Addresses: content.Addresses})
}

package aggregate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/storage/retry"
)

// The first and the longest wait before following a source again that has no next
// snapshot.
const (
	retryMin = 10 * time.Millisecond
	retryMax = time.Second
)

// errEnded: the cache of a source no longer runs, and does not say why.
var errEnded = errors.New("it ended")

// Run runs the sources and follows them until ctx ends, and then returns nil. If the
// store fails, Run returns its error. Another source that fails keeps its last content.
func (c *Cache) Run(ctx context.Context) error {
	if err := c.Seal(); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var running sync.WaitGroup
	var failure error // of the store, written before stop
	c.mu.Lock()
	c.start = func(m *member) {
		var own context.Context
		own, m.cancel = context.WithCancel(ctx)
		m.done, m.since = make(chan struct{}), c.o.Now()
		running.Go(func() {
			defer close(m.done)
			if err := c.runSource(own, m); err != nil && m.own {
				failure = err
				stop()
			}
		})
	}
	for _, m := range c.members {
		c.start(m)
	}
	c.mu.Unlock()
	running.Go(func() { c.awaitSources(ctx) })
	<-ctx.Done()
	c.mu.Lock()
	c.start = nil // Add starts nothing from now on
	c.mu.Unlock()
	running.Wait()
	return failure
}

// awaitSources ends the wait of a first start, after FirstSync or, while a source is being read,
// several times that.
func (c *Cache) awaitSources(ctx context.Context) {
	for n := 1; retry.Sleep(ctx, c.o.FirstSync) == nil; n++ {
		if n == longestRead || !c.reading() {
			c.waitNoMore(time.Duration(n) * c.o.FirstSync)
			return
		}
	}
}

// reading says whether a first start waits for a source that is being read.
func (c *Cache) reading() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.members, func(m *member) bool {
		r, ok := m.Cache.(interface{ Reading() bool })
		return ok && m.snapshot == nil && m.failed == nil && r.Reading()
	})
}

// waitNoMore ends the wait of a first start.
func (c *Cache) waitNoMore(waited time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waited = true
	if c.Snapshot() != nil {
		return
	}
	for _, m := range c.members {
		if m.snapshot == nil && !m.own {
			c.o.Log.Warn("a source of configuration was not read in time: the server starts without its objects", "source", m.Name, "waited", waited)
		}
	}
	c.publish(false)
}

// runSource runs a source and follows it until ctx ends. If the source ends before, runSource
// returns its error.
func (c *Cache) runSource(ctx context.Context, m *member) error {
	following, stop := context.WithCancel(ctx)
	var beside sync.WaitGroup
	beside.Go(func() { c.follow(following, m) })
	err := m.Cache.Run(ctx)
	if ctx.Err() == nil {
		if err == nil {
			err = errEnded
		}
		err = fmt.Errorf("the source of configuration %s: %w", m.Name, err)
		if !m.own {
			c.fail(m, err)
			<-ctx.Done() // its last objects are still served
		}
	}
	stop()
	beside.Wait()
	return err
}

// fail records that a source no longer runs.
func (c *Cache) fail(m *member, err error) {
	c.o.Log.Error("a source of configuration has failed: its last objects are served", "source", m.Name, "err", err)
	c.mu.Lock()
	defer c.mu.Unlock()
	m.failed, m.since = err, c.o.Now()
	if c.Snapshot() == nil {
		c.publish(false)
	}
}

// follow merges every snapshot of a source until ctx ends.
func (c *Cache) follow(ctx context.Context, m *member) {
	backoff := retry.New(retryMin, retryMax)
	var last *cache.Snapshot
	for {
		next, err := m.Cache.Next(ctx, last)
		if ctx.Err() != nil {
			return
		}
		if err != nil { // the source's history has dropped the next snapshot
			if next = m.Cache.Snapshot(); next == last {
				_ = backoff.Wait(ctx)
				continue
			}
		}
		backoff.Reset()
		c.merge(ctx, m, next, err != nil || m.own && c.hasGap(last, next))
		last = next
	}
}

// hasGap says whether the store does not know what was between two of its snapshots.
func (c *Cache) hasGap(last, next *cache.Snapshot) bool {
	if last == nil {
		return false
	}
	_, known := c.o.Store.At(last.Revision())
	return !known || next.Epoch() != last.Epoch()
}

// merge merges a snapshot of a source, and publishes the difference.
func (c *Cache) merge(ctx context.Context, m *member, s *cache.Snapshot, gap bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ctx.Err() != nil || c.member(m.Name) != m {
		return // it was removed
	}
	c.mergeSnapshot(m, s)
	c.publish(gap && m.own)
}

// Since returns the configuration just before a revision; see cache.Feed. For the first
// revision of this cache, the store provides the configuration before it. The objects of
// other sources then come again.
func (c *Cache) Since(ctx context.Context, revision int64) (*cache.Snapshot, bool) {
	since, ok := c.Feed.Since(ctx, revision)
	if !ok {
		return nil, false
	}
	if _, known := c.At(revision - 1); known {
		return since, true
	}
	stored, ok := c.o.Store.Since(ctx, revision)
	if !ok {
		return nil, false
	}
	return since.Next(since.Revision(), stored.Content()), true
}

// Await returns the newest snapshot once it is at a revision or beyond; see cache.Feed.
func (c *Cache) Await(ctx context.Context, revision int64) (*cache.Snapshot, error) {
	if s := c.Snapshot(); s != nil && s.Revision() >= revision {
		return s, nil
	}
	if _, err := c.o.Store.Await(ctx, revision); err != nil {
		return nil, err
	}
	return c.Feed.Await(ctx, revision)
}

// StoreRevision asks the store for its revision, if the store is behind a network.
func (c *Cache) StoreRevision(ctx context.Context) (int64, error) {
	if s, ok := c.o.Store.(interface {
		StoreRevision(ctx context.Context) (int64, error)
	}); ok {
		return s.StoreRevision(ctx)
	}
	return c.o.Store.Snapshot().Revision(), nil
}

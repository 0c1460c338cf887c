package statuses

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/retry"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/status"
)

// Base is the cache of the configuration to which the statuses are added.
type Base interface {
	Snapshot() *cache.Snapshot
	Since(ctx context.Context, revision int64) (*cache.Snapshot, bool)
	At(revision int64) (*cache.Snapshot, bool)
	Next(ctx context.Context, after *cache.Snapshot) (*cache.Snapshot, error)
	Await(ctx context.Context, revision int64) (*cache.Snapshot, error)
	StoreRevision(ctx context.Context) (int64, error)
}

// Options configure a Cache. Base and Schemas are required.
type Options struct {
	Base    Base
	Schemas schema.Set
	// Judged says that the servers of the store report on objects, so that one without a report
	// has yet to be judged.
	Judged bool
	// HistoryMemory bounds the history of merged snapshots; see cache.FeedOptions.
	HistoryMemory int64
	// Log gets messages about trouble; nil discards them.
	Log *slog.Logger
}

// Reports are the servers' reports under side/status, as of one revision. They are never
// modified.
type Reports struct {
	Revision int64
	// Statuses are the reports of servers and clients on objects, by the Path of their keys.
	Statuses pmap.Map[*status.Report]
	// Replicas are the reports of live servers, by their ids.
	Replicas pmap.Map[*status.Replica]
	// Uses are the objects in use on live servers, by server and part.
	Uses pmap.Map[*status.Use]
	// Sources are the reports of live servers about their sources other than the store,
	// by server. Contents are the objects of these, by etcd.ContentPath.
	Sources  pmap.Map[*status.Sources]
	Contents pmap.Map[*status.Content]
	// Proxies are the known proxies, by node id.
	Proxies pmap.Map[*status.Proxy]
}

// Cache mirrors Reports and adds the statuses of objects to the snapshots of its Base.
// While etcd cannot be reached it serves its last content.
type Cache struct {
	client *clientv3.Client
	base   Base
	o      Options
	feed   *cache.Feed                    // of merged snapshots; it has no handlers
	first  atomic.Pointer[cache.Snapshot] // the first snapshot since the feed's last Replace

	mu      sync.Mutex // guards the fields below
	facts   *Reports
	changed chan struct{} // closed when facts are replaced
}

// New returns a cache that waits for Run. The caller closes the client.
func New(client *clientv3.Client, o Options) *Cache {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Cache{
		client: client, base: o.Base, o: o, changed: make(chan struct{}),
		feed: cache.NewFeed(cache.FeedOptions{Worker: cache.NewWorker(), Schemas: o.Schemas, HistoryMemory: o.HistoryMemory}),
	}
}

// The first and the longest wait before another attempt to reach etcd.
const (
	retryMin = 50 * time.Millisecond
	retryMax = 5 * time.Second
)

// Run keeps the cache equal to etcd until ctx ends, and then returns nil.
func (c *Cache) Run(ctx context.Context) error {
	backoff := retry.New(retryMin, retryMax)
	for ctx.Err() == nil {
		begun := time.Now()
		err := c.mirror(ctx)
		if ctx.Err() != nil {
			break
		}
		if time.Since(begun) > retryMax {
			backoff.Reset()
		}
		level := slog.LevelWarn
		if errors.Is(err, errLeapt) {
			level = slog.LevelDebug
		}
		c.o.Log.Log(ctx, level, "listing the statuses in etcd anew", "err", err)
		_ = backoff.Wait(ctx)
	}
	return nil
}

// Reports returns the newest reports, nil before the first list, and a channel that is
// closed when newer ones replace them.
func (c *Cache) Reports() (*Reports, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.facts, c.changed
}

func (c *Cache) setFacts(f *Reports) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.facts = f
	close(c.changed)
	c.changed = make(chan struct{})
}

// Snapshot returns the newest snapshot, nil before the first.
func (c *Cache) Snapshot() *cache.Snapshot { return c.feed.Snapshot() }

// At returns the snapshot at a revision; see cache.Feed. For a revision before the
// first of this cache it answers as Since does.
func (c *Cache) At(revision int64) (*cache.Snapshot, bool) {
	first := c.first.Load()
	if s, ok := c.feed.At(revision); ok || revision >= first.Revision() {
		return s, ok
	}
	s, ok := c.base.At(revision)
	if !ok {
		return nil, false
	}
	return s.Until(revision).WithStatuses(upTo(revision, first, pmap.Map[*status.Report]{}), c.o.Judged), true
}

// Since returns the snapshot just before a revision; see cache.Feed. If this cache began
// later, it returns the snapshot of the base with those of the first statuses that are
// older. A follower gets the other statuses at the revision where this cache began.
func (c *Cache) Since(ctx context.Context, revision int64) (*cache.Snapshot, bool) {
	if before, ok := c.feed.At(revision - 1); ok {
		return before, true
	}
	before, ok := c.base.Since(ctx, revision)
	if !ok {
		return nil, false
	}
	return before.Until(revision-1).WithStatuses(upTo(revision-1, c.first.Load(), pmap.Map[*status.Report]{}), c.o.Judged), true
}

// upTo returns the statuses of the first snapshot that existed at a revision, on top of
// older ones.
func upTo(revision int64, first *cache.Snapshot, over pmap.Map[*status.Report]) pmap.Map[*status.Report] {
	for path, report := range first.Statuses().All() {
		if report = report.UpTo(revision); report != nil {
			over = over.Set(path, report)
		}
	}
	return over
}

// Next returns the snapshot that follows after; see cache.Feed. Up to the revision
// where this cache began, the base gives the snapshots, one per revision.
func (c *Cache) Next(ctx context.Context, after *cache.Snapshot) (*cache.Snapshot, error) {
	next, err := c.feed.Next(ctx, after)
	first := c.first.Load() // possibly later than that of next
	began := first.Revision()
	if err != nil || after.Revision() >= began {
		return next, err
	}
	if _, known := c.feed.At(after.Revision()); known {
		return next, nil
	}
	own := after // a snapshot of the base may have a later revision and the same content
	for own.Changed() <= after.Revision() && own.Revision() < began-1 {
		if own, err = c.base.Next(ctx, own); err != nil {
			return nil, err
		}
	}
	if after.Revision() < own.Changed() && own.Changed() < began {
		own = own.Until(began - 1)
		return own.WithStatuses(upTo(own.Revision(), first, after.Statuses()), c.o.Judged), nil
	}
	return next, nil
}

// Await returns the newest snapshot as soon as it is at a revision or beyond.
func (c *Cache) Await(ctx context.Context, revision int64) (*cache.Snapshot, error) {
	if s := c.feed.Snapshot(); s != nil && s.Revision() >= revision {
		return s, nil
	}
	if _, err := c.base.Await(ctx, revision); err != nil {
		return nil, err
	}
	return c.feed.Await(ctx, revision)
}

// StoreRevision asks the store for its revision; see mirror.Cache.
func (c *Cache) StoreRevision(ctx context.Context) (int64, error) { return c.base.StoreRevision(ctx) }

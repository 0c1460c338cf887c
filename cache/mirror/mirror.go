package mirror

import (
	"context"
	"hash/maphash"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// Defaults of Options.
const (
	DefaultProgressInterval = 5 * time.Second
	DefaultCheckInterval    = 5 * time.Minute
	DefaultRetryMin         = 50 * time.Millisecond
	DefaultRetryMax         = 5 * time.Second
)

// Options configure a Cache. Zero values mean the defaults.
type Options struct {
	// Worker is what the handlers run on. It is required.
	Worker *cache.Worker
	// Schemas are the kinds to keep. Keys of others are passed over.
	Schemas schema.Set
	// Store takes the mutations. Without one the cache is read-only.
	Store storage.ConfigStore
	// Domain is that of the objects, see config.Meta.
	Domain string
	// History is how many snapshots are kept for those who follow.
	History int
	// Log is where trouble with etcd is told; nil discards it.
	Log *slog.Logger
	// ProgressInterval is how often etcd is asked for its revision while it has
	// nothing to tell.
	ProgressInterval time.Duration
	// CheckInterval is how often, give or take a tenth, the cache is compared with
	// the store at the same revision; it also is when the connection was lost.
	// Negative is never.
	CheckInterval time.Duration
	// RetryMin and RetryMax bound the pause before etcd is tried again.
	RetryMin, RetryMax time.Duration
	// Now is the clock.
	Now func() time.Time
	// Registerer takes the metrics; nil is none.
	Registerer prometheus.Registerer
}

func (o *Options) setDefaults() {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.ProgressInterval <= 0 {
		o.ProgressInterval = DefaultProgressInterval
	}
	if o.CheckInterval == 0 {
		o.CheckInterval = DefaultCheckInterval
	}
	if o.RetryMin <= 0 {
		o.RetryMin = DefaultRetryMin
	}
	if o.RetryMax < o.RetryMin {
		o.RetryMax = max(DefaultRetryMax, o.RetryMin)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
}

// Cache is a cache.ConfigStoreCache of the configuration in etcd. While etcd
// cannot be reached it serves what it has.
type Cache struct {
	*cache.Feed
	client  *clientv3.Client
	o       Options
	metrics *metrics
	seed    maphash.Seed // of the sums in versions

	versions   versions
	quarantine atomic.Pointer[Quarantine]
	format     atomic.Pointer[etcd.Format] // as it was last read
	fresh      freshness
	heard      atomic.Pointer[time.Time] // when etcd last said something
	highest    atomic.Int64              // revision of the store that was met in this epoch
	listed     atomic.Int64              // revision of the last list
	waiting    atomic.Int64              // how many wait for a revision
	demand     chan struct{}             // holds a token when another one begins to

	reconnected chan struct{} // holds a token when the connection was lost and is there again

	silence silence // of the goroutine that asks, one at a time

	// The fields below are written by the goroutine of Run, while nothing runs
	// beside it.
	store etcd.Instance // that the snapshot came from
	epoch int64
	inOne bool  // the last list was overtaken by a compaction
	cause error // of the next list, nil of the first
}

var (
	_ cache.ConfigStoreCache = (*Cache)(nil)
	_ storage.Batcher        = (*Cache)(nil)
)

// New returns a cache that waits to be run. The client stays the caller's; its
// keepalive is what notices a connection that went dead.
func New(client *clientv3.Client, o Options) *Cache {
	o.setDefaults()
	c := &Cache{
		Feed: cache.NewFeed(cache.FeedOptions{
			Worker: o.Worker, Schemas: o.Schemas, Store: o.Store, History: o.History,
		}),
		client: client, o: o, seed: maphash.MakeSeed(), demand: make(chan struct{}, 1), reconnected: make(chan struct{}, 1),
	}
	c.fresh.restart(o.Now())
	c.metrics = newMetrics(o.Registerer, c)
	return c
}

// Run keeps the cache equal to etcd until ctx ends, and then returns nil. An
// etcd that cannot be reached, also at the start, is tried again and again.
func (c *Cache) Run(ctx context.Context) error {
	if err := c.Seal(); err != nil {
		return err
	}
	var beside sync.WaitGroup
	defer beside.Wait()
	beside.Go(func() { c.tend(ctx) })
	retry := pause{min: c.o.RetryMin, max: c.o.RetryMax}
	for ctx.Err() == nil {
		err := c.list(ctx)
		if err == nil {
			if c.cause != nil {
				c.metrics.relists.WithLabelValues(reasonOf(c.cause)).Inc()
			}
			err = c.follow(ctx, &retry)
			c.cause = err
		}
		if ctx.Err() == nil {
			c.o.Log.Warn("listing the configuration in etcd anew", "err", err, "revision", c.Snapshot().Revision())
			retry.wait(ctx)
		}
	}
	return nil
}

// LastHeard is when etcd last said something, the zero time if it never did.
func (c *Cache) LastHeard() time.Time {
	if at := c.heard.Load(); at != nil {
		return *at
	}
	return time.Time{}
}

// Reachable says whether etcd answers: it is asked every ProgressInterval, and
// three of them may pass in silence.
func (c *Cache) Reachable() bool { return c.o.Now().Sub(c.LastHeard()) <= 3*c.o.ProgressInterval }

func (c *Cache) hear() {
	now := c.o.Now()
	c.heard.Store(&now)
}

// pause is the time between two attempts: it doubles from min to max, and half
// of it is random, so that replicas do not come all at once.
type pause struct {
	min, max, next time.Duration
}

func (p *pause) reset() { p.next = 0 }

func (p *pause) wait(ctx context.Context) {
	p.next = min(max(2*p.next, p.min), p.max)
	timer := time.NewTimer(p.next/2 + rand.N(p.next/2+1))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

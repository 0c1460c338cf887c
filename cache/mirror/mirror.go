package mirror

import (
	"context"
	"hash/maphash"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/retry"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// Defaults of Options.
const (
	defaultProgressInterval = 5 * time.Second
	defaultCheckInterval    = 5 * time.Minute
	defaultRetryMin         = 50 * time.Millisecond
	defaultRetryMax         = 5 * time.Second
)

// Options configure a Cache. Zero values mean the defaults.
type Options struct {
	// Worker runs the handlers. It is required.
	Worker *cache.Worker
	// Schemas are the kinds to keep. Keys of other kinds are quarantined.
	Schemas schema.Set
	// Store gets the mutations. Without one the cache is read-only.
	Store storage.ConfigStore
	// Unasked: the cache does not begin a store in an etcd that has none. It waits until
	// somebody else does.
	Unasked bool
	// Expendable: the cache follows a store that was emptied. What it holds can be made again.
	Expendable bool
	// Domain is the DNS suffix of the mesh, set on every object; see config.Meta.
	Domain string
	// History is how many snapshots are kept for followers; see cache.FeedOptions.
	History int
	// HistoryMemory bounds their memory; see cache.FeedOptions.
	HistoryMemory int64
	// Log gets messages about trouble with etcd; nil discards them.
	Log *slog.Logger
	// ProgressInterval is how often the cache asks etcd for its revision and progress.
	ProgressInterval time.Duration
	// CheckInterval is how often, give or take a tenth, the cache compares itself with
	// the store at the same revision. It also does so after a lost connection. Negative
	// means never.
	CheckInterval time.Duration
	// RetryMin and RetryMax are the first and the longest wait before a retry, give or
	// take half.
	RetryMin, RetryMax time.Duration
	// Now is the clock.
	Now func() time.Time
	// Registerer registers the metrics; nil for none.
	Registerer prometheus.Registerer
}

func (o *Options) setDefaults() {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.ProgressInterval <= 0 {
		o.ProgressInterval = defaultProgressInterval
	}
	if o.CheckInterval == 0 {
		o.CheckInterval = defaultCheckInterval
	}
	if o.RetryMin <= 0 {
		o.RetryMin = defaultRetryMin
	}
	if o.RetryMax < o.RetryMin {
		o.RetryMax = max(defaultRetryMax, o.RetryMin)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
}

// Cache is a cache.ConfigStoreCache of the configuration in etcd. While etcd cannot be
// reached it serves its last content.
type Cache struct {
	*cache.Feed
	client  *clientv3.Client
	o       Options
	metrics *metrics
	seed    maphash.Seed // of the hashes in versions

	versions   versions
	quarantine atomic.Pointer[Quarantine]
	format     atomic.Pointer[etcd.Format] // as last read
	emptied    atomic.Bool                 // the cache refuses the store, see checkEmptied
	absent     atomic.Bool                 // nobody has begun a store, see checkFounded
	fresh      freshness
	heard      atomic.Pointer[time.Time] // when etcd last answered
	highest    atomic.Int64              // highest known revision of the store in this epoch
	listed     atomic.Int64              // revision of the last list
	waiting    atomic.Int64              // callers of Await
	demand     chan struct{}             // holds a token when a caller begins to wait

	reconnected chan struct{} // holds a token when a lost connection is ready again

	silence silence // used by the goroutine of ask, of which one runs at a time

	// Only the goroutine of Run writes the fields below, while no other runs.
	store etcd.Instance // the source of the snapshot
	epoch int64
	whole bool  // the next list reads one page: etcd compacted the revision of the last
	cause error // of the next list; nil for the first
}

var (
	_ cache.ConfigStoreCache = (*Cache)(nil)
	_ storage.Batcher        = (*Cache)(nil)
)

// New returns a cache that waits for Run. The caller closes the client, whose keepalive
// notices a dead connection.
func New(client *clientv3.Client, o Options) *Cache {
	o.setDefaults()
	c := &Cache{
		Feed: cache.NewFeed(cache.FeedOptions{
			Worker: o.Worker, Schemas: o.Schemas, Store: o.Store, History: o.History,
			HistoryMemory: o.HistoryMemory,
		}),
		client: client, o: o, seed: maphash.MakeSeed(), demand: make(chan struct{}, 1), reconnected: make(chan struct{}, 1),
	}
	c.fresh.restart(o.Now())
	c.metrics = newMetrics(o.Registerer, c)
	return c
}

// Run keeps the cache equal to etcd until ctx ends, and then returns nil. It retries
// an etcd that cannot be reached, at the start too.
func (c *Cache) Run(ctx context.Context) error {
	if err := c.Seal(); err != nil {
		return err
	}
	var beside sync.WaitGroup
	defer beside.Wait()
	beside.Go(func() { c.watchConnection(ctx) })
	backoff := retry.New(c.o.RetryMin, c.o.RetryMax)
	for ctx.Err() == nil {
		err := c.list(ctx)
		if err == nil {
			err = c.follow(ctx, backoff)
			c.cause = err
		}
		if ctx.Err() == nil {
			c.o.Log.Warn("listing the configuration in etcd anew", "err", err, "revision", c.Snapshot().Revision())
			_ = backoff.Wait(ctx)
		}
	}
	return nil
}

// lastHeard returns when etcd last answered, the zero time if never.
func (c *Cache) lastHeard() time.Time {
	if at := c.heard.Load(); at != nil {
		return *at
	}
	return time.Time{}
}

// Reachable says whether etcd answered within the last three ProgressIntervals.
func (c *Cache) Reachable() bool { return c.o.Now().Sub(c.lastHeard()) <= 3*c.o.ProgressInterval }

func (c *Cache) markHeard() {
	now := c.o.Now()
	c.heard.Store(&now)
}

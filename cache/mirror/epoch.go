package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/connectivity"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/storage/etcd"
)

var errWentBack = errors.New("the store in etcd is not the one this cache was read from, or went back to an older revision")

// errEmptied: the store had objects, and now has none.
var errEmptied = errors.New("the store in etcd was emptied, or replaced by an empty one")

// errNoStore: nobody has begun a store, and this cache is not to.
var errNoStore = errors.New("there is no store in etcd, and a server that other machines can reach begins none by itself: " +
	"check --etcd-endpoints, restore a snapshot into etcd, or, for the first server of a new mesh, start it once with --new-store")

// checkFounded refuses an etcd without a store, unless the cache may begin one.
func (c *Cache) checkFounded(store etcd.Instance, read cache.Content) error {
	absent := c.o.Unasked && store.ID == "" && store.Format.Revision == 0 && read.Configs.Len() == 0
	if c.absent.Store(absent); absent {
		return errNoStore
	}
	return nil
}

// checkEmptied refuses an empty store that had objects before: following it would
// withdraw everything from all proxies. The cache follows it if it is still the same
// store, whose objects the API deleted, or if it has a format, so somebody has written
// to it since.
func (c *Cache) checkEmptied(store etcd.Instance, read cache.Content) error {
	now := c.Snapshot()
	emptied := !c.o.Expendable && now != nil && now.Configs().Len() > 0 && read.Configs.Len() == 0 &&
		store.Format.Revision == 0 && c.compareIdentity(store, 0) != nil
	c.emptied.Store(emptied)
	if emptied {
		return errEmptied
	}
	return nil
}

// identify reads the identity and the revision of the store.
func (c *Cache) identify(ctx context.Context) (etcd.Instance, error) {
	ctx, cancel := context.WithTimeout(ctx, c.probeTimeout())
	defer cancel()
	store, err := etcd.ReadInstance(ctx, c.client)
	if err == nil {
		c.markHeard()
		c.setFormat(store.Format)
	}
	return store, err
}

// setFormat keeps the format of the store, and logs the first one that is too new for this
// binary.
func (c *Cache) setFormat(f etcd.Format) {
	known := c.checkFormat()
	c.format.Store(&f)
	if err := c.checkFormat(); err != nil && known == nil {
		c.o.Log.Warn("a newer server has written to the store", "err", err, "format", f.StorageFormat, "reader", f.MinReader)
	}
}

// checkFormat says why this binary may misread the store or refuses to write to it; nil if
// neither is true.
func (c *Cache) checkFormat() error {
	f := c.format.Load()
	if f == nil {
		return nil
	}
	readable, writable := f.Readable(), f.Writable()
	if readable != nil && writable != nil {
		return fmt.Errorf("%w; %w", readable, writable)
	}
	return cmp.Or(readable, writable)
}

// ensureIdentity is like identify, and writes an id to a store that has none. A store
// that cannot be written stays without.
func (c *Cache) ensureIdentity(ctx context.Context) (etcd.Instance, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	store, err := etcd.EnsureInstance(ctx, c.client)
	if err != nil && store.Cluster != 0 {
		c.o.Log.Warn("the store in etcd has no id and cannot be given one: another one in its place may be noticed late", "err", err)
		return store, nil
	}
	return store, err
}

// recognise is like identify, and fails with errWentBack unless the store is the one
// that the cache was read from, at no older revision.
func (c *Cache) recognise(ctx context.Context) (etcd.Instance, error) {
	highest := c.highest.Load() // before the answer, which may be older than an event of the watch
	store, err := c.identify(ctx)
	if err != nil {
		return store, err
	}
	if err := c.compareIdentity(store, highest); err != nil {
		return store, err
	}
	c.raiseKnown(store.Revision)
	return store, nil
}

func (c *Cache) compareIdentity(store etcd.Instance, highest int64) error {
	switch {
	case store.Cluster != c.store.Cluster:
		return fmt.Errorf("%w: its cluster is %x and was %x", errWentBack, store.Cluster, c.store.Cluster)
	case c.store.ID != "" && store.ID != c.store.ID:
		return fmt.Errorf("%w: its id is %q and was %q", errWentBack, store.ID, c.store.ID)
	case store.Revision < highest:
		return fmt.Errorf("%w: it is at %d and was at %d", errWentBack, store.Revision, highest)
	}
	return nil
}

// setStore makes the listed store the store of this cache. A new epoch begins if it is
// another store, if it went back, or if a check found a difference. In the last two
// cases the store may have reused revisions, and followers of the cache may have got
// wrong objects.
func (c *Cache) setStore(store etcd.Instance) {
	if c.Snapshot() != nil {
		err := c.compareIdentity(store, c.highest.Load())
		if err == nil && (errors.Is(c.cause, errWentBack) || errors.Is(c.cause, errDiverged)) {
			err = c.cause
		}
		if err != nil {
			c.epoch++
			c.metrics.epochs.Inc()
			c.o.Log.Error("a new epoch of the configuration begins: revisions may be lower than before, or stand for something else",
				"epoch", c.epoch, "revision", store.Revision, "before", c.Snapshot().Revision(), "err", err)
		}
	}
	c.store = store
	c.highest.Store(store.Revision)
}

// raiseKnown raises the highest known revision of the store.
func (c *Cache) raiseKnown(revision int64) {
	for {
		highest := c.highest.Load()
		if revision <= highest || c.highest.CompareAndSwap(highest, revision) {
			return
		}
	}
}

// freshness bounds the age of the cache. When the store answers with its revision, the
// cache has all writes acknowledged before the request once it is at that revision.
type freshness struct {
	mu       sync.Mutex // guards the fields below
	asOf     time.Time  // the cache has all writes before this time
	asked    time.Time  // when the pending request was sent; zero while none is pending
	revision int64      // the answer to it
}

// restart records that the cache has all writes before at.
func (f *freshness) restart(at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asOf, f.asked = at, time.Time{}
}

// note records that the store, asked at a time, answered with a revision.
func (f *freshness) note(asked time.Time, revision, cache int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.settle(cache)
	if f.asked.IsZero() {
		f.asked, f.revision = asked, revision
		f.settle(cache)
	}
}

func (f *freshness) settle(cache int64) {
	if !f.asked.IsZero() && cache >= f.revision {
		f.asOf, f.asked = f.asked, time.Time{}
	}
}

// at returns the time before which a cache at a revision has all writes.
func (f *freshness) at(cache int64) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.settle(cache)
	return f.asOf
}

// Staleness returns the greatest possible age of the cache: it shows every write that
// was acknowledged longer ago. It is measured against the store, so it grows while the
// store does not answer, and up to ProgressInterval between two probes. Before the first
// list it counts from New.
func (c *Cache) Staleness() time.Duration {
	// Read the revision first: with a later one an earlier answer would seem fulfilled.
	return max(0, c.o.Now().Sub(c.fresh.at(c.Snapshot().Revision())))
}

// Degraded says why the served configuration may be old or misread, or why it cannot be
// changed; nil if nothing is wrong. It does not include faults of single objects, which
// Quarantine shows.
func (c *Cache) Degraded() error {
	var problems []string
	if !c.Reachable() {
		problems = append(problems, fmt.Sprintf("etcd does not answer: what is served is as of revision %s, %s ago",
			c.Version(), c.Staleness().Round(time.Second)))
	}
	if c.emptied.Load() {
		problems = append(problems, fmt.Sprintf("%v: what was known at revision %s is served on, and nothing is written: restore a snapshot into it, "+
			"or, where a new store is meant, start all servers again", errEmptied, c.Version()))
	}
	if c.absent.Load() {
		problems = append(problems, errNoStore.Error())
	}
	if err := c.checkFormat(); err != nil {
		problems = append(problems, err.Error())
	}
	if len(problems) == 0 {
		return nil
	}
	return errors.New(strings.Join(problems, "; "))
}

// watchConnection puts a token into reconnected whenever the connection to etcd is
// ready again after it may have been lost. It returns when ctx ends.
func (c *Cache) watchConnection(ctx context.Context) {
	connection := c.client.ActiveConnection()
	if connection == nil {
		return // an etcd in this process
	}
	lost := false
	for state := connection.GetState(); ; state = connection.GetState() {
		if state == connectivity.Ready && lost {
			lost = false
			select {
			case c.reconnected <- struct{}{}:
			default:
			}
		}
		if !connection.WaitForStateChange(ctx, state) {
			return
		}
		lost = lost || state == connectivity.Ready
	}
}

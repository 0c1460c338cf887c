package mirror

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/portolan-mesh/portolan/cache"
)

const (
	// patience is how many times in a row a probe may find the store ahead of a cache
	// that does not move. Then the watch counts as dead. It doubles, up to maxPatience,
	// with every watch that brought nothing: catching up may take long.
	patience    = 3
	maxPatience = 96
	// askFirst and askAgain are how long a caller of Await waits before the cache
	// requests progress from etcd, at first and afterwards: the event may be on its way.
	askFirst = 10 * time.Millisecond
	askAgain = 100 * time.Millisecond
)

// errSilent: the store has newer revisions but the watch does not report them.
var errSilent = errors.New("the watch went silent")

// keepInStep keeps an idle cache in step. Every ProgressInterval, and more often while a caller
// awaits a revision, it requests progress from etcd, which arrives as a progress
// notification of the watch. It ends the watch if the store is no longer the same, or if
// the watch went silent.
func (c *Cache) keepInStep(ctx context.Context, cancel context.CancelCauseFunc) {
	ticker := time.NewTicker(c.o.ProgressInterval)
	defer ticker.Stop()
	demanded := time.NewTimer(0)
	defer demanded.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if err := c.probe(ctx); err != nil {
				cancel(err)
				return
			}
			c.requestProgress(ctx)
		case <-c.demand:
			demanded.Reset(askFirst)
		case <-demanded.C:
			if c.waiting.Load() > 0 {
				c.requestProgress(ctx)
				demanded.Reset(askAgain)
			}
		}
	}
}

// silence counts the probes in a row that found the store ahead of a cache that did not
// move.
type silence struct {
	revision        int64
	times, patience int
}

// watchAlive records the revisions of store and cache, and says whether the watch may be
// alive.
func (s *silence) watchAlive(store, cache int64) bool {
	if cache >= store || cache != s.revision {
		*s = silence{revision: cache, patience: patience}
		return true
	}
	if s.times++; s.times <= s.patience {
		return true
	}
	s.times, s.patience = 0, min(2*s.patience, maxPatience)
	return false
}

// probe asks the store for its identity and revision. It ignores an etcd that does not
// answer.
func (c *Cache) probe(ctx context.Context) error {
	asked := c.o.Now()
	store, err := c.recognise(ctx)
	switch {
	case errors.Is(err, errWentBack):
		return err
	case err != nil:
		c.o.Log.Debug("etcd cannot be asked for its revision", "err", err)
		return nil
	}
	stands := c.Snapshot().Revision()
	c.fresh.note(asked, store.Revision, stands)
	if !c.silence.watchAlive(store.Revision, stands) {
		return fmt.Errorf("%w: the store is at %d, the cache at %d", errSilent, store.Revision, stands)
	}
	return nil
}

func (c *Cache) probeTimeout() time.Duration {
	return min(max(c.o.ProgressInterval, time.Second), callTimeout)
}

// requestProgress needs a context of the watch: etcd's client finds the stream by the
// metadata of the context. Without a connection the call waits.
// https://github.com/etcd-io/etcd/pull/8347
func (c *Cache) requestProgress(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, c.o.ProgressInterval)
	defer cancel()
	if err := c.client.RequestProgress(ctx); err != nil {
		c.o.Log.Debug("etcd cannot be asked for its progress", "err", err)
	}
}

// Await returns the newest snapshot once it is at revision or beyond. While a caller
// waits, the cache requests progress from etcd, so that it soon reaches a revision that
// changed nothing here.
func (c *Cache) Await(ctx context.Context, revision int64) (*cache.Snapshot, error) {
	if s := c.Snapshot(); s != nil && s.Revision() >= revision {
		return s, nil
	}
	c.waiting.Add(1)
	defer c.waiting.Add(-1)
	select {
	case c.demand <- struct{}{}:
	default:
	}
	return c.Feed.Await(ctx, revision)
}

// StoreRevision reads the revision of the store, linearizably. A snapshot at that
// revision or beyond shows every write that was acknowledged before the call.
func (c *Cache) StoreRevision(ctx context.Context) (int64, error) {
	store, err := c.identify(ctx)
	return store.Revision, err
}

package mirror

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/portolan-mesh/portolan/cache"
)

const (
	// patience is how many times in a row the store may be found ahead of a cache
	// that does not move before the watch is taken for dead. It doubles, up to
	// maxPatience, with every watch that brought nothing: one that has much to
	// catch up with takes its time.
	patience    = 3
	maxPatience = 96
	// askFirst and askAgain are how long one who waits for a revision waits before
	// etcd is asked for its progress: an event that is on its way comes first.
	askFirst = 10 * time.Millisecond
	askAgain = 100 * time.Millisecond
)

// errSilent: the store has newer revisions and the watch does not say so.
var errSilent = errors.New("the watch went silent")

// ask keeps an idle cache in step: every ProgressInterval, and oftener while
// somebody waits for a revision, it asks etcd for its progress, which comes back
// as a mark of the watch. It ends the watch when the store is no longer the
// same, or has something to tell and does not.
func (c *Cache) ask(ctx context.Context, cancel context.CancelCauseFunc) {
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

// silence counts how often the store was found ahead of a cache that had not
// moved since.
type silence struct {
	revision        int64
	times, patience int
}

// hears notes where the store and the cache stand, and says whether the watch
// may be alive.
func (s *silence) hears(store, cache int64) bool {
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

// probe asks the store who it is and where it stands. An etcd that does not
// answer is no reason to do anything.
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
	if !c.silence.hears(store.Revision, stands) {
		return fmt.Errorf("%w: the store is at %d, the cache at %d", errSilent, store.Revision, stands)
	}
	return nil
}

// probeTimeout bounds the questions that are asked again and again.
func (c *Cache) probeTimeout() time.Duration {
	return min(max(c.o.ProgressInterval, time.Second), callTimeout)
}

// requestProgress must be called with a context of the watch: only the stream
// of the same metadata is asked. While there is no connection the call waits.
func (c *Cache) requestProgress(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, c.o.ProgressInterval)
	defer cancel()
	if err := c.client.RequestProgress(ctx); err != nil {
		c.o.Log.Debug("etcd cannot be asked for its progress", "err", err)
	}
}

// Await returns the newest snapshot as soon as it is at revision or beyond. As
// long as somebody waits, etcd is asked for its progress, so that a revision
// that changed nothing here is soon known too.
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

// StoreRevision asks the store for its revision, by quorum: a snapshot at that
// revision or beyond shows every write that was acknowledged before.
func (c *Cache) StoreRevision(ctx context.Context) (int64, error) {
	store, err := c.identify(ctx)
	return store.Revision, err
}

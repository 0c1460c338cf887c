package upkeep

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// compactTimeout bounds the wait for a compaction, which goes on without us.
const compactTimeout = time.Minute

// A mark is the newest revision at some time.
type mark struct {
	at       time.Time
	revision int64
}

// A compactor remembers which revision was the newest when. It forgets with
// its process: history is then kept for up to one retention longer.
type compactor struct {
	marks []mark // oldest first
	last  int64  // the last compaction
}

// due notes the revision of now and returns that to compact to, 0 for none:
// the newest that was superseded more than the retention ago.
func (c *compactor) due(now time.Time, revision int64, retention time.Duration) int64 {
	if n := len(c.marks); n > 0 && c.marks[n-1].revision > revision {
		c.marks = nil // the store went back, as after a restore
	}
	if n := len(c.marks); n == 0 || now.Sub(c.marks[n-1].at) >= retention/10 {
		c.marks = append(c.marks, mark{at: now, revision: revision})
	}
	var target int64
	for len(c.marks) > 0 && now.Sub(c.marks[0].at) >= retention {
		target = c.marks[0].revision
		c.marks = c.marks[1:]
	}
	if target <= max(c.last, 1) || target > revision {
		return 0
	}
	return target
}

// compactOld drops what is older than the retention.
func (k *Keeper) compactOld(ctx context.Context, s *Status) {
	target := k.compactor.due(k.p.Now(), s.Revision, k.p.Retention)
	if target == 0 {
		return
	}
	begun := k.p.Now()
	err := k.compactTo(ctx, target)
	switch {
	case err == nil:
		k.warnings.compact.clear()
		k.log.Debug("store compacted", "revision", target, "took", k.p.Now().Sub(begun))
	case ctx.Err() == nil && k.warnings.compact.raise(begun):
		k.log.Warn("the history of the store grows: it could not be compacted; it will be tried again",
			"revision", target, "err", err)
	}
}

// Compact drops all revisions below one, 0 for the newest, and waits until
// their space is free for reuse. Those who watch from below it have to list
// anew. It is for the whole store, however many members that has; the change is
// that of this one. A revision below the last compaction changes nothing.
func (k *Keeper) Compact(ctx context.Context, revision int64) (Change, error) {
	return k.change(ctx, func(s *Status) error {
		if revision == 0 {
			revision = s.Revision
		}
		return k.compactTo(ctx, revision)
	})
}

// compactTo is Compact, of someone whose turn it is.
func (k *Keeper) compactTo(ctx context.Context, revision int64) error {
	ctx, cancel := context.WithTimeout(ctx, compactTimeout)
	defer cancel()
	_, err := k.target.Client.Compact(ctx, revision, clientv3.WithCompactPhysical())
	// Somebody else was faster.
	if err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
		return fmt.Errorf("compact the store to revision %d: %w", revision, err)
	}
	k.compactor.last = max(k.compactor.last, revision)
	return nil
}

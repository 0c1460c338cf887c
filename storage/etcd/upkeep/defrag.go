package upkeep

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// defragTimeout bounds the wait for a defragmentation; etcd finishes a longer one
// anyway. copyRoom is the free space that it needs besides its copy of the data.
const (
	defragTimeout = 10 * time.Minute
	copyRoom      = 64 << 20
)

// A defragmenter knows how long a defragmentation has been wanted, and whether
// the moment is quiet.
type defragmenter struct {
	revision int64
	changed  time.Time // when a look last found another revision
	wanted   time.Time // since when it is wanted; zero while it is not
	again    time.Time // the earliest next attempt, after one that failed or had to wait
}

// noteRevision notes when the revision changed.
func (d *defragmenter) noteRevision(s *Status) {
	if s.Revision != d.revision {
		d.revision, d.changed = s.Revision, s.At
	}
}

// worthDefragmenting says whether a defragmentation would free much of a database.
func (k *Keeper) worthDefragmenting(s *Status) bool {
	return s.Size > 2*s.InUse && s.Size > k.p.DefragMin || almostFull(s) && s.Size-s.InUse > s.Size/4
}

// due says whether to defragment now: there is much to free, and the moment is quiet, or
// waiting for one is no option.
func (d *defragmenter) due(k *Keeper, s *Status) bool {
	switch {
	case !k.worthDefragmenting(s):
		d.wanted = time.Time{}
		return false
	case s.At.Before(d.again):
		return false
	case d.wanted.IsZero():
		d.wanted = s.At
	}
	return almostFull(s) || s.At.Sub(d.changed) >= k.p.Quiet || s.At.Sub(d.wanted) >= k.p.Patience
}

// defragmentNow defragments if it is the turn of this member. If that fails, it notes
// when to try again.
func (k *Keeper) defragmentNow(ctx context.Context, s *Status) {
	waited := s.At.Sub(k.defrag.wanted)
	err := k.defragmentInTurn(ctx, s, func(o others) error { return k.mayDefragment(o, waited) })
	now := k.p.Now()
	switch {
	case err == nil:
		k.warnings.defrag.clear()
	case ctx.Err() != nil:
	case errors.Is(err, ErrWait) && waited < k.p.Patience:
		k.defrag.again = now.Add(k.p.BackoffMin)
		k.log.Debug("the defragmentation of the store waits", "err", err)
	default:
		k.defrag.again = now.Add(k.p.BackoffMax)
		if k.warnings.defrag.shouldLog(now) {
			k.log.Warn("the store takes more space than it needs: it could not be defragmented; it will be tried again", "err", err)
		}
	}
}

// Defragment gives unused space back to the file system. The member answers nobody
// meanwhile: about 1 s for 1 GiB in use. It affects this member only. The error is an
// ErrWait while another member of the cluster is away or being defragmented.
func (k *Keeper) Defragment(ctx context.Context) (Change, error) {
	return k.change(ctx, func(s *Status) error { return k.defragmentInTurn(ctx, s, others.healthy) })
}

// defragmentInTurn defragments if may permits it, and if no other member is being
// defragmented.
func (k *Keeper) defragmentInTurn(ctx context.Context, s *Status, may func(others) error) error {
	o, err := k.others(ctx, s)
	if err == nil {
		err = may(o)
	}
	if err != nil {
		return fmt.Errorf("defragment the store: %w", err)
	}
	unlock, err := k.lockDefragmentation(ctx, o, s)
	if err != nil {
		return fmt.Errorf("defragment the store: %w", err)
	}
	defer unlock()
	return k.defragment(ctx, s)
}

// defragment does the work of Defragment. The caller has the turn, and a fresh Status.
func (k *Keeper) defragment(ctx context.Context, s *Status) error {
	space, err := SpaceOf(k.target.DataDir)
	if need := s.InUse + copyRoom; err == nil && space.Free < need {
		return fmt.Errorf("defragment the store: it makes a copy, for which %s needs %d MiB free, and it has %d MiB: free some space there",
			k.target.DataDir, mib(need), mib(space.Free))
	}
	k.busy.Store(true)
	defer k.busy.Store(false)
	begun := time.Now()
	if err := k.target.defragment(ctx); err != nil {
		return fmt.Errorf("defragment the store: %w", err)
	}
	took := time.Since(begun)
	k.metrics.defrag.Observe(took.Seconds())
	k.defrag.wanted, k.defrag.again = time.Time{}, time.Time{}
	after, err := k.readStatus(ctx)
	if err != nil {
		return err
	}
	k.log.Info("store defragmented: it answered nobody meanwhile",
		"took", took.Round(time.Millisecond), "beforeMiB", mib(s.Size), "afterMiB", mib(after.Size))
	return nil
}

// defragment has the member defragment its database, and waits.
func (t Target) defragment(ctx context.Context) error {
	if t.Defragment != nil {
		return t.Defragment()
	}
	ctx, cancel := context.WithTimeout(ctx, defragTimeout)
	defer cancel()
	_, err := t.Client.Defragment(ctx, t.Endpoint)
	return err
}

package upkeep

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portolan-mesh/portolan/storage/etcd"
)

// CompactKey holds the last compaction. Each Keeper of a cluster finds out for itself
// what is due, and the one that replaces the value first compacts. The others see that
// it was replaced, and skip this time. So one of them compacts in each interval, and
// when it is gone another takes over.
const CompactKey = etcd.MetaPrefix + "compact"

// compactTimeout bounds the wait for a compaction, which goes on regardless.
const compactTimeout = time.Minute

// compacted is the value of CompactKey.
type compacted struct {
	// Revision is the revision compacted to.
	Revision int64 `json:"revision"`
	// Puts is the version of CompactKey at that revision. It shows whether anything but
	// compactions has been written since.
	Puts int64 `json:"puts"`

	modified int64 // mod revision of the key, 0 where there is none
	puts     int64 // the present version of the key
	now      int64 // present revision of the store
}

// A mark says which revision was the newest at some time.
type mark struct {
	at             time.Time
	revision, puts int64
}

// A compactor remembers which revision was the newest when. When the process ends the
// marks are lost: history is then kept for up to one retention longer.
type compactor struct {
	marks []mark // oldest first
	seen  int64  // the mod revision of CompactKey when a compaction was last due
	last  int64  // the last known compaction
}

// wantsMark says whether to note the present revision.
func (c *compactor) wantsMark(now time.Time, retention time.Duration) bool {
	n := len(c.marks)
	return n == 0 || now.Sub(c.marks[n-1].at) >= retention/10
}

// takeDue removes and returns the newest mark of at least the retention ago.
func (c *compactor) takeDue(now time.Time, retention time.Duration) (m mark, ok bool) {
	for len(c.marks) > 0 && now.Sub(c.marks[0].at) >= retention {
		m, ok = c.marks[0], true
		c.marks = c.marks[1:]
	}
	return m, ok
}

// compactOld drops revisions older than the retention.
func (k *Keeper) compactOld(ctx context.Context, s *Status) {
	if err := k.addMark(ctx, s); err != nil {
		k.log.Debug("the revision of now is not noted", "err", err)
	}
	begun := k.p.Now()
	target, err := k.claimCompaction(ctx)
	if err == nil && target != 0 {
		err = k.compactTo(ctx, target)
	}
	switch {
	case err != nil:
		if ctx.Err() == nil && k.warnings.compact.shouldLog(begun) {
			k.log.Warn("the history of the store grows: it could not be compacted; it will be tried again", "err", err)
		}
	case target != 0:
		k.warnings.compact.clear()
		k.log.Debug("store compacted", "revision", target, "took", k.p.Now().Sub(begun))
	}
}

// addMark adds a mark of the present revision, every tenth of the retention.
func (k *Keeper) addMark(ctx context.Context, s *Status) error {
	c, now := &k.compactor, k.p.Now()
	if n := len(c.marks); n > 0 && c.marks[n-1].revision > s.Revision {
		*c = compactor{} // the revision fell, as after a restore
	}
	if !c.wantsMark(now, k.p.Retention) {
		return nil
	}
	r, err := k.lastCompacted(ctx)
	if err != nil {
		return err
	}
	c.marks = append(c.marks, mark{at: now, revision: r.now, puts: r.puts})
	return nil
}

// claimCompaction returns the revision to compact to, or 0 if there is none or another Keeper
// compacts.
func (k *Keeper) claimCompaction(ctx context.Context) (target int64, err error) {
	c := &k.compactor
	m, ok := c.takeDue(k.p.Now(), k.p.Retention)
	if !ok {
		return 0, nil
	}
	r, err := k.lastCompacted(ctx)
	if err != nil {
		return 0, err
	}
	others := r.modified != c.seen // the Keeper that compacted since will do it again
	c.seen, c.last = r.modified, max(c.last, r.Revision)
	if others || m.revision-c.last <= m.puts-r.Puts || m.revision <= max(c.last, 1) {
		return 0, nil
	}
	return k.replace(ctx, r, m)
}

// lastCompacted reads CompactKey.
func (k *Keeper) lastCompacted(ctx context.Context) (compacted, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	answer, err := k.target.Client.Get(ctx, CompactKey)
	if err != nil {
		return compacted{}, fmt.Errorf("read %s: %w", CompactKey, err)
	}
	out := compacted{now: answer.Header.Revision}
	for _, kv := range answer.Kvs {
		if json.Unmarshal(kv.Value, &out) != nil {
			out.Revision, out.Puts = 0, 0 // unreadable, and soon replaced
		}
		out.modified, out.puts = kv.ModRevision, kv.Version
	}
	return out, nil
}

// replace writes CompactKey if it is unchanged since it was read. If it succeeds, it
// returns the revision that this Keeper must compact to, else 0.
func (k *Keeper) replace(ctx context.Context, r compacted, m mark) (target int64, err error) {
	value, err := json.Marshal(compacted{Revision: m.revision, Puts: m.puts})
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	answer, err := k.target.Client.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(CompactKey), "=", r.modified)).
		Then(clientv3.OpPut(CompactKey, string(value))).Commit()
	if err != nil {
		return 0, fmt.Errorf("write %s: %w", CompactKey, err)
	}
	if !answer.Succeeded {
		return 0, nil
	}
	k.compactor.seen = answer.Header.Revision
	return m.revision, nil
}

// Compact drops all revisions below a revision, 0 for the newest, and waits until their
// space can be reused. Watches that begin below it must list again. It affects the whole
// store, whatever the number of members; the returned Change is of this member. A
// revision below the last compaction changes nothing.
func (k *Keeper) Compact(ctx context.Context, revision int64) (Change, error) {
	return k.change(ctx, func(s *Status) error {
		if revision == 0 {
			revision = s.Revision
		}
		return k.compactTo(ctx, revision)
	})
}

// compactTo does what Compact does. The caller has the turn.
func (k *Keeper) compactTo(ctx context.Context, revision int64) error {
	ctx, cancel := context.WithTimeout(ctx, compactTimeout)
	defer cancel()
	_, err := k.target.Client.Compact(ctx, revision, clientv3.WithCompactPhysical())
	// Another member was faster.
	if err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
		return fmt.Errorf("compact the store to revision %d: %w", revision, err)
	}
	k.compactor.last = max(k.compactor.last, revision)
	return nil
}

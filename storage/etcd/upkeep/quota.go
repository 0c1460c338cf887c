package upkeep

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portolan-mesh/portolan/storage/retry"
)

// almostFull says whether 80 % of the quota is used.
func almostFull(s *Status) bool { return !s.hasAmpleRoom(s.Size) }

// watchQuota warns while there is still room.
func (k *Keeper) watchQuota() {
	s := k.Status()
	now := k.p.Now()
	switch {
	case !almostFull(s):
		if k.warnings.quota.clear() {
			k.log.Info("the store is below 80 % of its quota again", "sizeMiB", mib(s.Size), "quotaMiB", mib(s.Quota))
		}
	case k.warnings.quota.shouldLog(now):
		k.log.Warn("the store is filling up, and takes no writes at its quota: delete objects, keep less history (--store-retention) or start the server with a larger --store-quota",
			"sizeMiB", mib(s.Size), "inUseMiB", mib(s.InUse), "quotaMiB", mib(s.Quota))
	}
}

var errStillFull = errors.New("compaction and defragmentation freed too little")

// A quotaRecovery makes room in a store whose quota is used up, step by step and with pauses:
// each step stops the store for a moment.
type quotaRecovery struct {
	begun    time.Time      // when the alarm was first seen
	tried    time.Time      // when the last attempt ended
	pause    time.Duration  // until the next attempt
	backoff  *retry.Backoff // nil before the first
	revision int64          // after the last attempt
	waits    bool           // for other members; the next attempt is at the next look
}

// calm is how long after the last attempt, without an alarm, the pauses are short again.
const calm = 10 * time.Minute

// due says whether to try now. After an attempt that did not help, only a deletion can
// change the revision, and the next attempt may then succeed.
func (l *quotaRecovery) due(k *Keeper, s *Status) bool {
	since := s.At.Sub(l.tried)
	switch {
	case l.tried.IsZero(), l.waits, since >= l.pause:
		return true
	default:
		return s.Revision != l.revision && since >= k.p.BackoffMin
	}
}

func (l *quotaRecovery) attemptEnded(k *Keeper) {
	l.tried, l.revision = k.p.Now(), k.Status().Revision
	if l.backoff == nil {
		l.backoff = retry.NewExact(k.p.BackoffMin, k.p.BackoffMax)
	}
	l.pause = l.backoff.Next()
}

// noAlarm notes that there is no alarm now.
func (l *quotaRecovery) noAlarm(k *Keeper) {
	l.begun, l.waits = time.Time{}, false
	if !l.tried.IsZero() && k.p.Now().Sub(l.tried) >= calm {
		*l = quotaRecovery{}
	}
}

// makeRoom makes a store whose quota is used up take writes again.
func (k *Keeper) makeRoom(ctx context.Context, s *Status) {
	if k.warnings.noSpace.shouldLog(s.At) {
		k.log.Error("the store takes no writes: its quota is used up", "sizeMiB", mib(s.Size), "inUseMiB", mib(s.InUse), "quotaMiB", mib(s.Quota))
	}
	if !k.recovery.due(k, s) {
		return
	}
	if k.recovery.begun.IsZero() {
		k.recovery.begun = s.At
	}
	err := k.recoverQuota(ctx, s)
	if ctx.Err() != nil {
		return
	}
	if k.recovery.waits = errors.Is(err, ErrWait); k.recovery.waits {
		k.log.Debug("the store has no room yet", "err", err)
		return
	}
	k.recovery.attemptEnded(k)
	after := k.Status()
	if err != nil {
		k.log.Error("the store stays full of live data: start the server with a larger --store-quota, then delete what is not needed",
			"err", err, "inUseMiB", mib(after.InUse), "quotaMiB", mib(after.Quota), "retryIn", k.recovery.pause)
		return
	}
	k.writesAgain(after)
}

// writesAgain logs that the alarm is lifted, by this Keeper or anybody else.
func (k *Keeper) writesAgain(s *Status) {
	if k.warnings.noSpace.clear() {
		k.log.Info("the store takes writes again", "sizeMiB", mib(s.Size), "quotaMiB", mib(s.Quota))
	}
}

// recoverQuota takes the necessary steps: drop all history, defragment one member after the
// other, lift the alarm once all have room.
func (k *Keeper) recoverQuota(ctx context.Context, s *Status) error {
	if !s.hasAmpleRoom(s.InUse) && k.compactor.last < s.Revision {
		if err := k.compactTo(ctx, s.Revision); err != nil {
			return err
		}
		k.log.Warn("all history of the store was dropped to make room", "revision", s.Revision)
	}
	waited := s.At.Sub(k.recovery.begun)
	if !s.hasAmpleRoom(s.Size) {
		err := k.defragmentInTurn(ctx, s, func(o others) error { return k.mayClear(o, s, waited) })
		if err != nil {
			return err
		}
		if s = k.Status(); !s.hasRoom(s.Size) {
			return errStillFull
		}
	}
	o, err := k.others(ctx, s)
	if err == nil {
		err = k.mayDisarm(o, waited)
	}
	if err != nil {
		return err
	}
	return k.disarm(ctx)
}

// disarm lifts the alarm on every member that has raised it.
func (k *Keeper) disarm(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	list, err := k.target.Client.AlarmList(ctx)
	if err != nil {
		return fmt.Errorf("list the alarms of the store: %w", err)
	}
	for _, a := range list.Alarms {
		if a.Alarm != etcdserverpb.AlarmType_NOSPACE {
			continue
		}
		if _, err := k.target.Client.AlarmDisarm(ctx, (*clientv3.AlarmMember)(a)); err != nil {
			return fmt.Errorf("lift the alarm of the store: %w", err)
		}
	}
	_, err = k.readStatus(ctx)
	return err
}

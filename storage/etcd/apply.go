package etcd

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc/connectivity"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/plan"
	"github.com/portolan-mesh/portolan/storage/retry"
)

// timePerOperation is how much longer a batch may take for each of its operations: a slow etcd
// needs seconds for some ten thousand in one transaction.
const timePerOperation = time.Millisecond

// timeoutOf returns how long a batch may take. A writer in doubt must still find its record.
func (s *Store) timeoutOf(ops []storage.Op) time.Duration {
	return max(s.o.RequestTimeout, min(s.o.RequestTimeout+time.Duration(len(ops))*timePerOperation, storage.HistoryGrace/2))
}

// Apply reads the targets at one revision, decides, and commits one transaction. The
// transaction compares the revisions of all targets, unchanged ones too, and of the
// storage format. Apply does not read targets that this Store wrote or read a moment
// ago: the comparison finds out. The answer to a lost race carries the targets, so the
// next attempt needs no read; a conditional operation fails then.
//
// When an answer is lost, Apply looks for the transaction, and sends it again if it has
// not landed. It lands once or not at all, and Apply reports which. It returns
// storage.ErrOutcomeUnknown only where etcd does not answer again in time.
func (s *Store) Apply(ctx context.Context, ops []storage.Op) (string, []storage.Result, error) {
	if err := s.checkCount(ops); err != nil {
		return "", nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeoutOf(ops))
	defer cancel()
	batch := s.newWork(ops)
	found := s.guess(batch)
	backoff := newBackoff()
	for attempt := 1; ; attempt++ {
		now := s.o.Now()
		steps, err := s.decide(ctx, batch, &found, now)
		if err != nil {
			return "", nil, err
		}
		if !plan.Changes(steps) {
			return version(found.revision), plan.Results(steps, version(found.revision)), nil
		}
		revision, lost, err := s.commit(ctx, steps, found, now)
		if err != nil {
			return "", nil, err
		}
		if lost == nil {
			return version(revision), plan.Results(steps, version(revision)), nil
		}
		found = lost
		if err := backoff.Wait(ctx); err != nil {
			return "", nil, fmt.Errorf("apply: %w: others changed the same objects before each of %d attempts, nothing was written: %w",
				storage.ErrUnavailable, attempt, err)
		}
	}
}

// guess returns targets without a read: absent ones for a batch of creates, else those
// that this Store remembers. It returns nil if it does not remember all of them, if a
// health condition decides, or if there is no connection.
func (s *Store) guess(batch healthBatch) *targets {
	format, known := s.knownFormat()
	if !known || !s.connected() || len(batch.watched) > 0 {
		return nil
	}
	if batch.OnlyCreates() {
		t := newTargets(0)
		t.format = format
		return t
	}
	return s.recall(batch.Keys(), format)
}

// decide plans the steps of a batch, given its targets. Only a transaction proves a
// guess right. So where a guess leads to an error, or to no transaction, decide reads
// the targets and plans again.
func (s *Store) decide(ctx context.Context, batch healthBatch, found **targets, now time.Time) ([]plan.Step, error) {
	stamp := plan.Stamp{Now: now, NewUID: uuid.NewString, Domain: s.o.Domain}
	if *found != nil {
		(*found).serve(batch.watched)
		steps, err := batch.Decide((*found).objects, stamp)
		if !(*found).guessed || err == nil && plan.Changes(steps) {
			return steps, err
		}
	}
	read, err := s.read(ctx, batch.Keys(), batch.watched)
	if err != nil {
		return nil, fmt.Errorf("apply: nothing was written: %w", s.readError(err))
	}
	*found = read
	read.serve(batch.watched)
	return batch.Decide(read.objects, stamp)
}

// connected says whether a request would be sent at once. A mutation that waits for a
// connection until its deadline looks like one whose answer was lost. A read before it
// tells the two apart.
func (s *Store) connected() bool {
	connection := s.client.ActiveConnection()
	return connection == nil || connection.GetState() == connectivity.Ready
}

// commit writes steps, and the addresses that they give or take, in one transaction,
// if the targets are as found. If not, it writes nothing and lost is the targets as
// they are now.
func (s *Store) commit(ctx context.Context, steps []plan.Step, found *targets, now time.Time) (revision int64, lost *targets, err error) {
	claims := s.claims(steps)
	// Each claim takes an operation at least; allot finds the exact number.
	if err := s.checkAddresses(steps, len(claims)); err != nil {
		return 0, nil, err
	}
	s.assume(claims, found)
	allotted, err := s.allot(ctx, claims, found, now)
	if err != nil {
		return 0, nil, fmt.Errorf("apply: nothing was written: %w", err)
	}
	if err := s.checkAddresses(steps, len(allotted.keys)); err != nil {
		return 0, nil, err
	}
	m, err := s.newMutation(steps, found, allotted, s.recordOf(ctx, steps, found, now))
	if err != nil {
		return 0, nil, err
	}
	if err := ctx.Err(); err != nil {
		return 0, nil, fmt.Errorf("apply: %w: nothing was sent: %w", storage.ErrUnavailable, err)
	}
	revision, lost, err = s.land(ctx, m)
	if err != nil {
		return 0, nil, fmt.Errorf("apply %s: %w", subject(steps), err)
	}
	if lost != nil {
		lost.markAbsent(allotted.keys)
		return 0, lost, nil
	}
	s.tellWithout(ctx, allotted)
	return revision, nil, nil
}

// subject names the object or the batch of an error.
func subject(steps []plan.Step) string {
	if len(steps) == 1 {
		return steps[0].Key.String()
	}
	return fmt.Sprintf("%d objects, %s first", len(steps), steps[0].Key)
}

// newBackoff returns the waits between the attempts of one mutation. The first is below
// a millisecond.
func newBackoff() *retry.Backoff { return retry.NewFair(time.Millisecond/2, 64*time.Millisecond) }

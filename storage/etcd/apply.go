package etcd

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc/connectivity"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/plan"
)

// Apply reads the targets at one revision, decides, and commits in one
// transaction that compares the revision of every target, those that do not
// change included, and that of the storage format. Targets that this Store wrote
// or read a moment ago are not read, since the comparison finds out. The answer
// to a lost race carries what the targets are now, so the next attempt needs no
// read; it fails where an operation was conditional.
//
// A transaction whose answer is lost is looked for, and sent again if it has
// not landed: it lands once or not at all, and which of the two is reported.
// storage.ErrOutcomeUnknown is for when etcd did not answer again in time.
func (s *Store) Apply(ctx context.Context, ops []storage.Op) (string, []storage.Result, error) {
	if err := s.checkCount(ops); err != nil {
		return "", nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.o.RequestTimeout)
	defer cancel()
	batch := s.newWork(ops)
	found := s.guess(batch)
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
		if err := backOff(ctx, attempt); err != nil {
			return "", nil, fmt.Errorf("apply: %w: others changed the same objects before each of %d attempts, nothing was written: %w",
				storage.ErrUnavailable, attempt, err)
		}
	}
}

// guess is what the targets are taken to be without asking: absent, where all
// are to be made, or what this Store remembers of them. It is nil where it does
// not remember all, where health decides, and where there is no connection.
func (s *Store) guess(batch work) *targets {
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

// decide returns what the operations come to, given what the targets were found
// to be. Only a transaction shows that a guess is right: one that leads to an
// error, or to no transaction, is given up, and the targets are read.
func (s *Store) decide(ctx context.Context, batch work, found **targets, now time.Time) ([]plan.Step, error) {
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

// connected says whether a request would be sent at once. A mutation that waits
// for a connection until its deadline looks like one whose answer was lost; a
// read before it tells them apart.
func (s *Store) connected() bool {
	connection := s.client.ActiveConnection()
	return connection == nil || connection.GetState() == connectivity.Ready
}

// commit writes steps in one transaction, with the addresses that hosts get or
// lose by them, if the targets are as they were found. If not, nothing is written
// and lost is what they are now.
func (s *Store) commit(ctx context.Context, steps []plan.Step, found *targets, now time.Time) (revision int64, lost *targets, err error) {
	claims := s.claims(steps)
	s.assume(claims, found)
	allotted, err := s.allot(ctx, claims, found, now)
	if err != nil {
		return 0, nil, fmt.Errorf("apply: nothing was written: %w", err)
	}
	if err := s.checkAddresses(len(steps), len(allotted.keys)); err != nil {
		return 0, nil, err
	}
	m, err := s.newMutation(steps, found, allotted, newRecord(steps, found, storage.OriginOf(ctx), now, s.recordLimit()))
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
		lost.knowAbsent(allotted.keys)
		return 0, lost, nil
	}
	s.tellWithout(ctx, allotted)
	return revision, nil, nil
}

// subject names what a batch is about, in an error.
func subject(steps []plan.Step) string {
	if len(steps) == 1 {
		return steps[0].Key.String()
	}
	return fmt.Sprintf("%d objects, %s first", len(steps), steps[0].Key)
}

// backOff waits, the first time hardly, then longer and longer, with jitter so
// that rivals do not meet again.
func backOff(ctx context.Context, attempt int) error {
	limit := time.Millisecond << min(attempt-1, 7)
	timer := time.NewTimer(rand.N(limit))
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

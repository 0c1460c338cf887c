package memory

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/plan"
)

// lease is a lease that has not ended. The store's mu guards it.
type lease struct {
	ttl   time.Duration
	until time.Time
	timer *time.Timer
}

// Grant implements storage.Leaser. The TTL passes on the real clock.
func (s *Store) Grant(_ context.Context, ttl time.Duration) (storage.LeaseID, error) {
	ttl, err := storage.LeaseTTL(ttl)
	if err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastLease++
	id := s.lastLease
	s.leases[id] = &lease{ttl: ttl, until: time.Now().Add(ttl), timer: time.AfterFunc(ttl, func() { s.expire(id) })}
	return id, nil
}

// Renew implements storage.Leaser.
func (s *Store) Renew(_ context.Context, id storage.LeaseID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.leases[id]
	if l == nil {
		return fmt.Errorf("renew lease %x: %w: it has ended", int64(id), storage.ErrNotFound)
	}
	l.until = time.Now().Add(l.ttl)
	l.timer.Reset(l.ttl)
	return nil
}

// Revoke implements storage.Leaser.
func (s *Store) Revoke(_ context.Context, id storage.LeaseID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leases[id] == nil {
		return fmt.Errorf("revoke lease %x: %w: it has ended", int64(id), storage.ErrNotFound)
	}
	return s.end(id)
}

// expire ends a lease, unless it was renewed since its timer ran out.
func (s *Store) expire(id storage.LeaseID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.leases[id]; l != nil && !time.Now().Before(l.until) {
		_ = s.end(id) // it deletes, which cannot fail
	}
}

// end ends a lease and deletes the objects under it. The caller holds mu.
func (s *Store) end(id storage.LeaseID) error {
	s.leases[id].timer.Stop()
	delete(s.leases, id)
	now := s.current.Load()
	var steps []plan.Step
	for key, under := range s.under {
		if object, ok := now.Configs.Get(key.Path()); ok && under == id {
			steps = append(steps, plan.Step{Key: key, Outcome: storage.Deleted, Before: object})
		}
	}
	if len(steps) == 0 {
		return nil
	}
	slices.SortFunc(steps, func(a, b plan.Step) int { return strings.Compare(a.Key.Path(), b.Key.Path()) })
	next, err := s.advance(context.Background(), now, steps)
	if err != nil {
		return err
	}
	s.record(next.revision, steps, storage.LeaseOrigin(), s.now())
	s.move(steps)
	return nil
}

// checkLeases returns an error if a step is under a lease that has ended. The caller holds mu.
func (s *Store) checkLeases(steps []plan.Step) error {
	for _, step := range steps {
		if step.Lease != 0 && step.Lease != storage.OffLease && s.leases[step.Lease] == nil {
			return fmt.Errorf("apply %s: %w: nothing was written: the lease has ended", step.Key, storage.ErrNotFound)
		}
	}
	return nil
}

// move notes under which leases the objects of written steps are. The caller holds mu.
func (s *Store) move(steps []plan.Step) {
	for _, step := range steps {
		switch {
		case step.Outcome == storage.Deleted, step.Lease == storage.OffLease:
			delete(s.under, step.Key)
		case step.Lease != 0:
			s.under[step.Key] = step.Lease
		}
	}
}

package memory

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/plan"
)

// GetResourceAtVersion asks the ledger.
func (s *Store) GetResourceAtVersion(ctx context.Context, version string, key config.Key) (string, error) {
	return s.GetLedger().ResourceVersionAt(ctx, version, key)
}

// GetLedger returns the ledger of the store's own last states, or the one of SetLedger.
func (s *Store) GetLedger() storage.Ledger { return *s.ledger.Load() }

// SetLedger makes GetResourceAtVersion ask another ledger from now on.
func (s *Store) SetLedger(l storage.Ledger) error {
	if l == nil {
		return errors.New("set ledger: it is nil")
	}
	s.ledger.Store(&l)
	return nil
}

// stateLedger is a storage.Ledger that reads the last states of a store.
type stateLedger struct{ store *Store }

func (l stateLedger) ResourceVersionAt(_ context.Context, version string, key config.Key) (string, error) {
	canonical, err := plan.Key(l.store.schemas, key.Kind, key.Name, key.Namespace)
	if err != nil {
		return "", fmt.Errorf("%s at version %s: %w", key, version, err)
	}
	revision, err := l.store.revision(version)
	if err != nil {
		return "", fmt.Errorf("%s at version %s: %w", key, version, err)
	}
	then := l.store.states.at(revision)
	if then == nil {
		return "", fmt.Errorf("%s at version %s: %w: it is older than what the store keeps", key, version, storage.ErrCompacted)
	}
	object, ok := then.Configs.Get(canonical.Path())
	if !ok {
		return "", fmt.Errorf("%s at version %s: %w", key, version, storage.ErrNotFound)
	}
	return object.ResourceVersion, nil
}

// revision returns the revision of a version that the store has reached.
func (s *Store) revision(version string) (int64, error) {
	revision, err := plan.Revision(version)
	if err == nil && revision > s.current.Load().revision {
		err = fmt.Errorf("%w: the store was never at that version", storage.ErrInvalid)
	}
	return revision, err
}

// Compact forgets the states before a revision, as a compaction of etcd does.
// The records of history stay.
func (s *Store) Compact(revision int64) { s.states.forget(revision) }

// states is a ring of the last states.
type states struct {
	mu sync.RWMutex
	// ring has the state of a revision at the place revision modulo its length.
	ring []*state
}

func newStates(n int) *states { return &states{ring: make([]*state, n)} }

func (h *states) add(s *state) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ring[s.revision%int64(len(h.ring))] = s
}

// at returns the state of a revision, nil if it is no longer kept.
func (h *states) at(revision int64) *state {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if s := h.ring[revision%int64(len(h.ring))]; s != nil && s.revision == revision {
		return s
	}
	return nil
}

// forget drops the states before a revision.
func (h *states) forget(revision int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, s := range h.ring {
		if s != nil && s.revision < revision {
			h.ring[i] = nil
		}
	}
}

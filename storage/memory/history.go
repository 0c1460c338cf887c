package memory

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/plan"
)

// GetResourceAtVersion asks the ledger.
func (s *Store) GetResourceAtVersion(ctx context.Context, version string, key config.Key) (string, error) {
	return s.GetLedger().ResourceVersionAt(ctx, version, key)
}

// GetLedger returns the history of the store, or what SetLedger put in its
// place.
func (s *Store) GetLedger() storage.Ledger { return *s.ledger.Load() }

// SetLedger has GetResourceAtVersion answered by another ledger from now on.
func (s *Store) SetLedger(l storage.Ledger) error {
	if l == nil {
		return errors.New("set ledger: it is nil")
	}
	s.ledger.Store(&l)
	return nil
}

// historyLedger is the history of a store as a storage.Ledger.
type historyLedger struct{ store *Store }

func (l historyLedger) ResourceVersionAt(_ context.Context, version string, key config.Key) (string, error) {
	canonical, err := plan.Key(l.store.schemas, key.Kind, key.Name, key.Namespace)
	if err != nil {
		return "", fmt.Errorf("%s at version %s: %w", key, version, err)
	}
	revision, err := strconv.ParseInt(version, 10, 64)
	if err != nil || revision < 1 || revision > l.store.current.Load().revision {
		return "", fmt.Errorf("%s at version %s: %w: the store was never at that version", key, version, storage.ErrInvalid)
	}
	then := l.store.history.at(revision)
	if then == nil {
		return "", fmt.Errorf("%s at version %s: %w: it is older than what the store keeps", key, version, storage.ErrCompacted)
	}
	object, ok := then.configs.Get(canonical.Path())
	if !ok {
		return "", fmt.Errorf("%s at version %s: %w", key, version, storage.ErrNotFound)
	}
	return object.ResourceVersion, nil
}

// history is a ring of the last states.
type history struct {
	mu sync.RWMutex
	// ring has the state of a revision at the place revision modulo its length.
	ring []*state
}

func newHistory(n int) *history { return &history{ring: make([]*state, n)} }

func (h *history) add(s *state) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ring[s.revision%int64(len(h.ring))] = s
}

// at returns the state of a revision, nil where it is no longer there.
func (h *history) at(revision int64) *state {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if s := h.ring[revision%int64(len(h.ring))]; s != nil && s.revision == revision {
		return s
	}
	return nil
}

package memory

import (
	"context"

	"github.com/portolan-mesh/portolan/storage/sealing"
)

// SealingRecord implements sealing.Records.
func (s *Store) SealingRecord(context.Context) (sealing.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sealing, nil
}

// SetSealingRecord implements sealing.Records.
func (s *Store) SetSealingRecord(_ context.Context, from, to sealing.Record) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sealing.Revision != from.Revision {
		return false, nil
	}
	to.Revision = from.Revision + 1
	s.sealing = to
	return true, nil
}

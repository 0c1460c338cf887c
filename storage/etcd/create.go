package etcd

import (
	"context"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/plan"
)

// Create is Apply of one operation, as a rule one round trip: If the key has no revision
// Then put. Apply reads first where it cannot guess, as before the storage format is
// known, or while the connection is not ready. It tries again after a lost race.
func (s *Store) Create(ctx context.Context, object *config.Config) (string, error) {
	return s.applyOne(ctx, storage.Op{Verb: storage.Create, Config: object})
}

func (s *Store) applyOne(ctx context.Context, op storage.Op) (string, error) {
	return plan.ApplyOne(op, func(ops []storage.Op) (string, []storage.Result, error) { return s.Apply(ctx, ops) })
}

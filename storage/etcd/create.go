package etcd

import (
	"context"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/plan"
)

// Create is one round trip: If the key has no revision Then put.
func (s *Store) Create(ctx context.Context, object *config.Config) (string, error) {
	return s.one(ctx, storage.Op{Verb: storage.Create, Config: object})
}

// one applies a single operation.
func (s *Store) one(ctx context.Context, op storage.Op) (string, error) {
	return plan.One(op, func(ops []storage.Op) (string, []storage.Result, error) { return s.Apply(ctx, ops) })
}

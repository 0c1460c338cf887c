package etcd

import (
	"context"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
)

// Update reads the object, unless it is one that this Store wrote or read a
// moment ago, and puts the new one If that revision still holds. Without a
// resource version in object a lost race is run again, on the object that won
// it, until the deadline.
func (s *Store) Update(ctx context.Context, object *config.Config) (string, error) {
	return s.one(ctx, storage.Op{Verb: storage.Update, Config: object})
}

package etcd

import (
	"context"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
)

// Update reads the object and puts the new one If the revision read still
// holds. Without a resource version in object a lost race is run again, on the
// object that won it, until the deadline.
func (s *Store) Update(ctx context.Context, object *config.Config) (string, error) {
	return s.one(ctx, storage.Op{Verb: storage.Update, Config: object})
}

package etcd

import (
	"context"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
)

// Update reads the object, unless this Store wrote or read it a moment ago, and puts the
// new one if the revision still holds. If object has no resource version, Update repeats
// a lost race on the winning object until the deadline.
func (s *Store) Update(ctx context.Context, object *config.Config) (string, error) {
	return s.applyOne(ctx, storage.Op{Verb: storage.Update, Config: object})
}

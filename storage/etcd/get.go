package etcd

import (
	"context"
	"fmt"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/plan"
)

// Get is a linearizable read: it shows every write that was acknowledged before it
// began. The error of a value that cannot be decoded is an ErrUndecodable.
func (s *Store) Get(ctx context.Context, kind config.GroupVersionKind, name, namespace string) (*config.Config, error) {
	key, err := plan.Key(s.Schemas(), kind, name, namespace)
	if err != nil {
		return nil, fmt.Errorf("get: %w", err)
	}
	response, err := s.get(ctx, ConfigKey(key))
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", key, s.readError(err))
	}
	if len(response.Kvs) == 0 {
		return nil, fmt.Errorf("get %s: %w", key, storage.ErrNotFound)
	}
	s.recent.remember(remembered{kv: response.Kvs[0]}, response.Header)
	object, err := Decode(response.Kvs[0], s.Schemas(), s.o.Domain)
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", key, err)
	}
	return object, nil
}

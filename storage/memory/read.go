package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/plan"
)

// Get implements storage.ConfigStore.
func (s *Store) Get(_ context.Context, kind config.GroupVersionKind, name, namespace string) (*config.Config, error) {
	key, err := plan.Key(s.schemas, kind, name, namespace)
	if err != nil {
		return nil, fmt.Errorf("get: %w", err)
	}
	object, ok := s.current.Load().Configs.Get(key.Path())
	if !ok {
		return nil, fmt.Errorf("get %s: %w", key, storage.ErrNotFound)
	}
	return object, nil
}

// List implements storage.ConfigStore.
func (s *Store) List(_ context.Context, kind config.GroupVersionKind, namespace string) ([]*config.Config, error) {
	found, err := plan.Kind(s.schemas, kind)
	if err != nil {
		return nil, fmt.Errorf("list: %w", err)
	}
	prefix := config.KindPath(found.GroupVersionKind)
	if namespace != "" {
		prefix = config.NamespacePath(found.GroupVersionKind, namespace)
	}
	var objects []*config.Config
	for _, object := range s.current.Load().Configs.Prefix(prefix) {
		objects = append(objects, object)
	}
	// Paths order "a-b/" before "a/".
	slices.SortFunc(objects, func(a, b *config.Config) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return objects, nil
}

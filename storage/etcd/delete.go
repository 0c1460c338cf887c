package etcd

import (
	"context"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
)

// Delete also deletes an object whose value cannot be decoded.
func (s *Store) Delete(ctx context.Context, kind config.GroupVersionKind, name, namespace, resourceVersion string) (string, error) {
	key := config.Key{Kind: kind, Namespace: namespace, Name: name}
	return s.applyOne(ctx, storage.Op{Verb: storage.Delete, Key: key, ResourceVersion: resourceVersion})
}

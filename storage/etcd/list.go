package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/plan"
)

// pageSize is how many keys a list asks for at once. For every page etcd counts
// the rest of the range, so small pages cost more than they spare.
const pageSize = 10_000

// List reads in pages, all as of the revision of the first. Values that cannot
// be read are left out and logged.
func (s *Store) List(ctx context.Context, kind config.GroupVersionKind, namespace string) ([]*config.Config, error) {
	found, err := plan.Kind(s.Schemas(), kind)
	if err != nil {
		return nil, fmt.Errorf("list: %w", err)
	}
	prefix := ConfigPrefix + config.KindPath(found.GroupVersionKind)
	if namespace != "" {
		prefix = ConfigPrefix + config.NamespacePath(found.GroupVersionKind, namespace)
	}
	kvs, err := s.scan(ctx, prefix)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", found.Plural, s.readError(err))
	}
	objects := make([]*config.Config, 0, len(kvs))
	for _, kv := range kvs {
		object, err := Decode(kv, s.Schemas(), s.o.Domain)
		if err != nil {
			s.o.Log.WarnContext(ctx, "stored object left out of a list", "key", string(kv.Key), "revision", kv.ModRevision, "err", err)
			continue
		}
		objects = append(objects, object)
	}
	// Keys order "a-b/" before "a/".
	slices.SortFunc(objects, func(a, b *config.Config) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return objects, nil
}

// scan reads everything under a prefix as of one revision. It begins again if
// that revision is compacted before the last page.
func (s *Store) scan(ctx context.Context, prefix string) ([]*mvccpb.KeyValue, error) {
	for {
		kvs, err := s.pages(ctx, prefix)
		if !errors.Is(err, rpctypes.ErrCompacted) {
			return kvs, err
		}
	}
}

func (s *Store) pages(ctx context.Context, prefix string) ([]*mvccpb.KeyValue, error) {
	var kvs []*mvccpb.KeyValue
	from := prefix
	opts := []clientv3.OpOption{clientv3.WithRange(clientv3.GetPrefixRangeEnd(prefix)), clientv3.WithLimit(pageSize)}
	for {
		page, err := s.get(ctx, from, opts...)
		if err != nil {
			return nil, err
		}
		if len(kvs) == 0 {
			opts = append(opts, clientv3.WithRev(page.Header.Revision))
		}
		kvs = append(kvs, page.Kvs...)
		if !page.More || len(page.Kvs) == 0 {
			return kvs, nil
		}
		from = string(kvs[len(kvs)-1].Key) + "\x00"
	}
}

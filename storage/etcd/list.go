package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/history"
	"github.com/portolan-mesh/portolan/storage/plan"
)

// List reads in pages, all as of the revision of the first. It skips and logs values
// that cannot be decoded.
func (s *Store) List(ctx context.Context, kind config.GroupVersionKind, namespace string) ([]*config.Config, error) {
	found, err := plan.Kind(s.Schemas(), kind)
	if err != nil {
		return nil, fmt.Errorf("list: %w", err)
	}
	prefix := ConfigPrefix + config.KindPath(found.GroupVersionKind)
	if namespace != "" {
		prefix = ConfigPrefix + config.NamespacePath(found.GroupVersionKind, namespace)
	}
	var objects []*config.Config
	err = restartIfCompacted(func() error {
		objects = objects[:0]
		_, err := s.walk(ctx, Range{Prefix: prefix}, func(kv *mvccpb.KeyValue) {
			objects = s.addObject(ctx, objects, kv)
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", found.Plural, s.readError(err))
	}
	history.Order(objects)
	return objects, nil
}

// addObject appends the object of a value, if it can be decoded.
func (s *Store) addObject(ctx context.Context, objects []*config.Config, kv *mvccpb.KeyValue) []*config.Config {
	object, err := Decode(kv, s.Schemas(), s.o.Domain)
	if err != nil {
		s.o.Log.WarnContext(ctx, "stored object left out of a list", "key", string(kv.Key), "revision", kv.ModRevision, "err", err)
		return objects
	}
	return append(objects, object)
}

// restartIfCompacted calls read again if etcd compacted the revision of its pages before the
// last page.
func restartIfCompacted(read func() error) error {
	for {
		if err := read(); !errors.Is(err, rpctypes.ErrCompacted) {
			return err
		}
	}
}

func (s *Store) walk(ctx context.Context, r Range, each func(*mvccpb.KeyValue)) (revision int64, err error) {
	header, err := r.Pages(ctx, s.get, func(page []*mvccpb.KeyValue) error {
		for _, kv := range page {
			each(kv)
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return cmp.Or(r.Revision, header.Revision), nil
}

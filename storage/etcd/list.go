package etcd

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/history"
	"github.com/portolan-mesh/portolan/storage/plan"
)

// pageSize is how many keys a list asks for at once. For every page etcd counts
// the rest of the range, so small pages cost more than they spare. Of values
// that may be large the first page is smaller (firstPage), and a page that was
// larger than pageBytes makes the next one smaller in proportion.
const (
	pageSize  = 10_000
	firstPage = 500
	pageBytes = 16 << 20
)

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
	var objects []*config.Config
	err = restarting(func() error {
		objects = objects[:0]
		_, err := s.walk(ctx, scan{prefix: prefix, limit: pageSize}, func(kv *mvccpb.KeyValue) {
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

// addObject appends the object of a value, if it can be read.
func (s *Store) addObject(ctx context.Context, objects []*config.Config, kv *mvccpb.KeyValue) []*config.Config {
	object, err := Decode(kv, s.Schemas(), s.o.Domain)
	if err != nil {
		s.o.Log.WarnContext(ctx, "stored object left out of a list", "key", string(kv.Key), "revision", kv.ModRevision, "err", err)
		return objects
	}
	return append(objects, object)
}

// restarting runs read, which reads pages of one revision, again where that
// revision was compacted before the last page.
func restarting(read func() error) error {
	for {
		if err := read(); !errors.Is(err, rpctypes.ErrCompacted) {
			return err
		}
	}
}

// scan says what walk reads.
type scan struct {
	prefix string
	// at is the revision to read at, 0 for the newest.
	at int64
	// limit is how many keys the first page has.
	limit    int
	keysOnly bool
}

// walk reads everything under a prefix, in the order of keys and in pages, all
// as of one revision, which it returns.
func (s *Store) walk(ctx context.Context, what scan, each func(*mvccpb.KeyValue)) (revision int64, err error) {
	opts := []clientv3.OpOption{clientv3.WithRange(clientv3.GetPrefixRangeEnd(what.prefix))}
	if what.keysOnly {
		opts = append(opts, clientv3.WithKeysOnly())
	}
	for from := what.prefix; ; {
		page, err := s.get(ctx, from, append(opts, clientv3.WithLimit(int64(what.limit)), clientv3.WithRev(what.at))...)
		if err != nil {
			return 0, err
		}
		if what.at == 0 {
			what.at = page.Header.Revision
		}
		size := 0
		for _, kv := range page.Kvs {
			size += len(kv.Value)
			each(kv)
		}
		n := len(page.Kvs)
		if !page.More || n == 0 {
			return what.at, nil
		}
		from = string(page.Kvs[n-1].Key) + "\x00"
		what.limit = max(1, min(pageSize, n*pageBytes/max(size, 1)))
	}
}

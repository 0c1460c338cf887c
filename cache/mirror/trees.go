package mirror

import (
	"iter"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/storage/address"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/health"
	"github.com/portolan-mesh/portolan/storage/pmap"
)

// tree is a part of what is watched that a snapshot holds as one map. Paths are
// keys without etcd.MeshPrefix. The values of a tree are of one type; nil is
// none.
type tree interface {
	// prefix is that of its paths.
	prefix() string
	// get returns the value of a path.
	get(from cache.Content, path string) any
	// all are the values, in the order of their paths.
	all(of cache.Content) iter.Seq2[string, any]
	// decode reads a value. The error is an etcd.ErrForeignKey or an
	// etcd.ErrUndecodable.
	decode(c *Cache, kv *mvccpb.KeyValue) (any, error)
	// same says whether two values are one state of one incarnation.
	same(a, b any) bool
	// set and remove change a content, fill replaces all values of the tree by
	// those in order.
	set(in *cache.Content, path string, value any)
	remove(in *cache.Content, path string)
	fill(in *cache.Content, sorted iter.Seq2[string, any])
}

// trees are all, in the order of their prefixes.
var trees = []tree{
	treeOf[*address.Assignment]{
		name:   strings.TrimPrefix(etcd.AddressPrefix, etcd.MeshPrefix),
		rows:   func(c *cache.Content) *pmap.Map[*address.Assignment] { return &c.Addresses },
		read:   func(_ *Cache, kv *mvccpb.KeyValue) (*address.Assignment, error) { return etcd.DecodeAddress(kv) },
		equals: func(a, b *address.Assignment) bool { return *a == *b },
	},
	treeOf[*config.Config]{
		name: strings.TrimPrefix(etcd.ConfigPrefix, etcd.MeshPrefix),
		rows: func(c *cache.Content) *pmap.Map[*config.Config] { return &c.Configs },
		read: func(c *Cache, kv *mvccpb.KeyValue) (*config.Config, error) {
			return etcd.Decode(kv, c.o.Schemas, c.o.Domain)
		},
		equals: same,
	},
	treeOf[*health.Report]{
		name:   strings.TrimPrefix(etcd.HealthPrefix, etcd.MeshPrefix),
		rows:   func(c *cache.Content) *pmap.Map[*health.Report] { return &c.Health },
		read:   func(_ *Cache, kv *mvccpb.KeyValue) (*health.Report, error) { return etcd.DecodeHealth(kv) },
		equals: func(a, b *health.Report) bool { return *a == *b },
	},
}

// treeAt returns the tree of a path, nil for one that no snapshot holds.
func treeAt(path string) tree {
	for _, t := range trees {
		if strings.HasPrefix(path, t.prefix()) {
			return t
		}
	}
	return nil
}

// treeOf is a tree of values of one type.
type treeOf[V comparable] struct {
	name   string
	rows   func(*cache.Content) *pmap.Map[V]
	read   func(*Cache, *mvccpb.KeyValue) (V, error)
	equals func(a, b V) bool
}

func (t treeOf[V]) prefix() string { return t.name }

func (t treeOf[V]) get(from cache.Content, path string) any {
	if value, ok := t.rows(&from).Get(path[len(t.name):]); ok {
		return value
	}
	return nil
}

func (t treeOf[V]) all(of cache.Content) iter.Seq2[string, any] {
	return func(yield func(string, any) bool) {
		for key, value := range t.rows(&of).All() {
			if !yield(t.name+key, value) {
				return
			}
		}
	}
}

func (t treeOf[V]) decode(c *Cache, kv *mvccpb.KeyValue) (any, error) { return t.read(c, kv) }

func (t treeOf[V]) same(a, b any) bool { return t.equals(a.(V), b.(V)) }

func (t treeOf[V]) set(in *cache.Content, path string, value any) {
	rows := t.rows(in)
	*rows = rows.Set(path[len(t.name):], value.(V))
}

func (t treeOf[V]) remove(in *cache.Content, path string) {
	rows := t.rows(in)
	*rows = rows.Delete(path[len(t.name):])
}

func (t treeOf[V]) fill(in *cache.Content, sorted iter.Seq2[string, any]) {
	*t.rows(in) = pmap.FromSorted(func(yield func(string, V) bool) {
		for path, value := range sorted {
			if !yield(path[len(t.name):], value.(V)) {
				return
			}
		}
	})
}

// everything is what a content holds, in the order of paths.
func everything(of cache.Content) iter.Seq2[string, any] {
	return func(yield func(string, any) bool) {
		for _, t := range trees {
			for path, value := range t.all(of) {
				if !yield(path, value) {
					return
				}
			}
		}
	}
}

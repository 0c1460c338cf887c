package mirror

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/storage/etcd"
)

// tree joins a tree of etcd with the map of a snapshot that holds it. Paths are keys
// without etcd.MeshPrefix.
type tree struct {
	path   string // of the tree: a part and a slash
	stored etcd.Tree
	held   cache.Tree
}

// trees are all mirrored trees, in the order of their paths.
var trees = mirrored(etcd.MeshTrees(), cache.Trees())

func mirrored(stored []etcd.Tree, held []cache.Tree) []*tree {
	var out []*tree
	for _, s := range stored {
		i := slices.IndexFunc(held, func(h cache.Tree) bool { return h.Name() == s.Name() })
		if i < 0 {
			panic(fmt.Sprintf("mirror: no snapshot holds what is under %s", s.Prefix))
		}
		out = append(out, &tree{path: strings.TrimPrefix(s.Prefix, etcd.MeshPrefix), stored: s, held: held[i]})
	}
	return out
}

// treeAt returns the tree of a path, nil if no snapshot holds it.
func treeAt(path string) *tree {
	for _, t := range trees {
		if strings.HasPrefix(path, t.path) {
			return t
		}
	}
	return nil
}

// get returns the value of a path, nil for none.
func (t *tree) get(from *cache.Content, path string) any { return t.held.Get(from, path[len(t.path):]) }

// The error of decode is an etcd.ErrForeignKey or an etcd.ErrUndecodable.
func (t *tree) decode(c *Cache, kv *mvccpb.KeyValue) (any, error) {
	return t.stored.Decode(kv, c.o.Schemas, c.o.Domain)
}

// same says whether two values are the same state of the same incarnation.
func (t *tree) same(a, b any) bool { return t.stored.Same(a, b) }

func (t *tree) set(in *cache.Content, path string, value any) {
	t.held.Set(in, path[len(t.path):], value)
}

func (t *tree) remove(in *cache.Content, path string) { t.held.Delete(in, path[len(t.path):]) }

// fill replaces all values of the tree by the values of entries, which are in key order.
func (t *tree) fill(in *cache.Content, of []entry) {
	t.held.Fill(in, func(yield func(string, any) bool) {
		for _, e := range of {
			if e.value != nil && !yield(e.path[len(t.path):], e.value) {
				return
			}
		}
	})
}

// allValues iterates over a content, in path order.
func allValues(of *cache.Content) iter.Seq2[string, any] {
	return func(yield func(string, any) bool) {
		for _, t := range trees {
			for key, value := range t.held.All(of) {
				if !yield(t.path+key, value) {
					return
				}
			}
		}
	}
}

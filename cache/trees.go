package cache

import (
	"iter"
	"reflect"
	"slices"

	"github.com/portolan-mesh/portolan/storage/address"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/health"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/status"
)

// trees are the maps of a Content. A new one needs a field of Content, an accessor of
// Snapshot, and an entry here.
var trees = []Tree{
	treeOf[*address.Assignment]{
		name:     "address",
		rows:     func(c *Content) *pmap.Map[*address.Assignment] { return &c.Addresses },
		revision: func(a *address.Assignment) int64 { return a.Revision },
	},
	treeOf[*config.Config]{
		name:     "config",
		rows:     func(c *Content) *pmap.Map[*config.Config] { return &c.Configs },
		revision: revisionOf,
	},
	treeOf[*health.Report]{
		name:     "health",
		rows:     func(c *Content) *pmap.Map[*health.Report] { return &c.Health },
		revision: func(r *health.Report) int64 { return r.Revision },
	},
	treeOf[*status.Report]{
		name:     "status",
		rows:     func(c *Content) *pmap.Map[*status.Report] { return &c.Statuses },
		revision: (*status.Report).Written,
	},
	treeOf[*Shadow]{
		name:     "shadow",
		rows:     func(c *Content) *pmap.Map[*Shadow] { return &c.Shadows },
		revision: func(*Shadow) int64 { return noRevision },
	},
}

// noRevision is the revision of a value of a source other than the store.
const noRevision = health.OfSource

// revisionOf returns the revision of the last write of an object.
func revisionOf(c *config.Config) int64 {
	if c.Source != "" {
		return noRevision
	}
	revision, _ := c.Revision()
	return revision
}

// Trees returns the maps of a Content.
func Trees() []Tree { return slices.Clone(trees) }

// Tree is one map of a Content, whatever the type of its values. A nil value is no
// value.
type Tree interface {
	// Name names the tree. If etcd holds the tree, it is the last part of its prefix.
	Name() string
	// Get returns the value of a key.
	Get(from *Content, key string) any
	// All iterates over the values, in key order.
	All(of *Content) iter.Seq2[string, any]
	// Set sets the value of a key.
	Set(in *Content, key string, value any)
	// Delete deletes a key.
	Delete(in *Content, key string)
	// Fill replaces all values by the given ones, which are in key order.
	Fill(in *Content, sorted iter.Seq2[string, any])

	// differences compares the tree of two contents.
	differences(from, to *Content) difference
	// undo deletes the values of a revision, and those without one.
	undo(in *Content, revision int64)
}

// treeOf is a tree of values of one type.
type treeOf[V comparable] struct {
	name string
	rows func(*Content) *pmap.Map[V]
	// revision returns the revision at which a value was written.
	revision func(V) int64
}

// Name implements Tree.
func (t treeOf[V]) Name() string { return t.name }

// Get implements Tree.
func (t treeOf[V]) Get(from *Content, key string) any {
	if value, ok := t.rows(from).Get(key); ok {
		return value
	}
	return nil
}

// All implements Tree.
func (t treeOf[V]) All(of *Content) iter.Seq2[string, any] {
	return func(yield func(string, any) bool) {
		for key, value := range t.rows(of).All() {
			if !yield(key, value) {
				return
			}
		}
	}
}

// Set implements Tree.
func (t treeOf[V]) Set(in *Content, key string, value any) {
	rows := t.rows(in)
	*rows = rows.Set(key, value.(V))
}

// Delete implements Tree.
func (t treeOf[V]) Delete(in *Content, key string) {
	rows := t.rows(in)
	*rows = rows.Delete(key)
}

// Fill implements Tree.
func (t treeOf[V]) Fill(in *Content, sorted iter.Seq2[string, any]) {
	*t.rows(in) = pmap.FromSorted(func(yield func(string, V) bool) {
		for key, value := range sorted {
			if !yield(key, value.(V)) {
				return
			}
		}
	})
}

func (t treeOf[V]) differences(from, to *Content) (d difference) {
	for change := range pmap.Diff(*t.rows(from), *t.rows(to)) {
		d.entries++
		d.bytes += perChange
		if change.HasOld {
			d.bytes += footprint(reflect.ValueOf(change.Old))
		}
	}
	return d
}

func (t treeOf[V]) undo(in *Content, revision int64) {
	for key, value := range t.rows(in).All() {
		if at := t.revision(value); at == revision || at == noRevision {
			t.Delete(in, key)
		}
	}
}

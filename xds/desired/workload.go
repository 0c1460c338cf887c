package desired

import (
	"slices"

	"github.com/portolan-mesh/portolan/xds/desired/memo"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// workload is the resources of one type of one proxy: the resources of its group, and
// among them the resources of its own workload, which are few.
type workload struct {
	table // the workload's own resources; without a generator if there are none
	uses  *memo.Uses
	names []string
	reads []mesh.Dependency // what the names follow from; nothing if others need them
	given bool              // the names are those that others need
	base  resource.Set      // the resources of the group
	own   resource.Set      // the workload's own that are in all
	all   resource.Set      // both
}

// advance inserts the workload's own resources into the resources of its group. A nil view
// means that nothing has changed for them.
func (w *workload) advance(view *mesh.View, context *mesh.PushContext, base resource.Set) {
	if w.generator != nil && view != nil {
		w.follow(view, context)
	}
	if w.own != w.set || w.base != base {
		w.base, w.own, w.all = base, w.set, base.Beside(w.set)
	}
}

// follow builds again what would not be built from the same.
func (w *workload) follow(view *mesh.View, context *mesh.PushContext) {
	if !w.given && (w.reads == nil || !memo.Hold(view, w.reads)) {
		recording := view.Recording()
		names := slices.Sorted(w.generator.Affected(recording, mesh.Diff(nil, context)))
		w.names, w.reads = slices.Compact(names), recording.Dependencies()
		w.drop()
	}
	for _, name := range w.names {
		if w.holds(view, name) {
			continue
		}
		last := w.built[name]
		w.rebuild(view, name)
		if built := w.built[name]; built != nil {
			w.uses.Replace(last, built)
			w.put(name, built.Resource)
		}
	}
}

// put sets the resource of a name, nil for none. It keeps a present one of the same
// version.
func (w *workload) put(name string, r *resource.Resource) {
	if r == nil {
		w.set = w.set.Delete(name)
	} else {
		w.set = w.set.Set(name, unless(w.set.Value(name), r))
	}
}

// need names the workload's own resources.
func (w *workload) need(names []string) {
	w.given = true
	if !slices.Equal(w.names, names) {
		w.names = names
		w.drop()
	}
}

// holds says whether a resource would be built from the same.
func (w *workload) holds(view *mesh.View, name string) bool {
	_, failed := w.failed[name]
	built := w.built[name]
	return !failed && built != nil && built.Holds(view)
}

// drop gives up what has no name any more.
func (w *workload) drop() {
	gone := func(name string) bool {
		_, still := slices.BinarySearch(w.names, name)
		return !still
	}
	for name := range w.built {
		if gone(name) {
			w.put(name, nil)
			w.uses.Replace(w.built[name], nil)
			delete(w.built, name)
		}
	}
	for name := range w.failed {
		if gone(name) {
			w.mend(w.failed, name)
		}
	}
}

// close gives up what the workload has of its own.
func (w *workload) close() {
	w.table.close()
	for _, built := range w.built {
		w.uses.Replace(built, nil)
	}
}

package desired

import (
	"slices"

	"github.com/portolan-mesh/portolan/xds/desired/memo"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// workloadType holds the resources of one type for one proxy: the resources of its group, and
// among them the few of its own workload.
type workloadType struct {
	table          // the workload's own resources; no generator if the type has none
	uses           *memo.Uses
	names          []string
	asksAnew       bool              // resources or names were built by other queries than before
	reads          []mesh.Dependency // queries that the names follow from; none if other resources need them
	namesFromNeeds bool              // names are what other resources need, not what the generator finds
	shape          mesh.Shape        // that the resources were built for
	base           resource.Set      // the resources of the group
	merged         resource.Set      // the workload's own as they are in all
	all            resource.Set      // both
}

// advance inserts the workload's own resources into the resources of its group. A nil view
// means that nothing has changed for them.
func (w *workloadType) advance(view *mesh.View, push *mesh.PushContext, base resource.Set) {
	if w.generator != nil && view != nil {
		w.rebuildChanged(view, push)
	}
	if w.merged != w.set || w.base != base {
		w.base, w.merged, w.all = base, w.set, base.Beside(w.set)
	}
}

// rebuildChanged finds the names of the workload's own resources anew if they may differ, and
// builds again each resource for which the view answers otherwise than before.
func (w *workloadType) rebuildChanged(view *mesh.View, push *mesh.PushContext) {
	if !w.namesFromNeeds && (w.reads == nil || !memo.Hold(view, w.reads)) {
		recording := view.Recording()
		names := slices.Sorted(w.generator.Affected(recording, mesh.Diff(nil, push)))
		w.names, w.reads, w.asksAnew = slices.Compact(names), recording.Dependencies(), true
		w.drop()
	}
	for _, name := range w.names {
		if w.upToDate(view, name) {
			continue
		}
		last := w.built[name]
		was := w.refresh(view, name)
		switch built := w.built[name]; {
		case built != last:
			w.asksAnew = w.asksAnew || !slices.EqualFunc(last.Reads(), built.Reads(), sameQuery)
			w.replace(last, built)
			w.put(name, built.Resource)
		case was != nil && w.memo != nil:
			w.memo.Release(was) // it holds for the other shape too, and was counted twice
		}
	}
	w.shape = view.Shape()
}

func sameQuery(a, b mesh.Dependency) bool { return a.Query == b.Query }

// put sets the resource of a name, nil for none. It keeps a present one of the same
// version.
func (w *workloadType) put(name string, r *resource.Resource) {
	if r == nil {
		w.set = w.set.Delete(name)
	} else {
		w.set = w.set.Set(name, keepIfSame(w.set.Value(name), r))
	}
}

// setNames sets the names of the workload's own resources to those that other resources need.
func (w *workloadType) setNames(names []string) {
	w.namesFromNeeds = true
	if !slices.Equal(w.names, names) {
		w.names, w.asksAnew = names, true
		w.drop()
	}
}

// upToDate says whether the last build of a resource succeeded, and would give the same now.
func (w *workloadType) upToDate(view *mesh.View, name string) bool {
	_, failed := w.failed[name]
	built := w.built[name]
	return !failed && built != nil && w.shape == view.Shape() && built.Holds(view)
}

// drop removes the resources and failures whose names are gone.
func (w *workloadType) drop() {
	gone := func(name string) bool {
		_, still := slices.BinarySearch(w.names, name)
		return !still
	}
	for name := range w.built {
		if gone(name) {
			w.put(name, nil)
			w.replace(w.built[name], nil)
			delete(w.built, name)
		}
	}
	for name := range w.failed {
		if gone(name) {
			w.clearFailure(w.failed, name)
		}
	}
}

// close gives up what the workload has of its own.
func (w *workloadType) close() {
	w.table.close()
	for _, built := range w.built {
		w.replace(built, nil)
	}
}

// replace counts what a built resource was made of, in the place of another; either may be nil.
func (w *workloadType) replace(last, built *memo.Built) {
	if w.memo != nil {
		w.memo.Release(last) // the memo counts
		return
	}
	w.uses.Replace(last, built)
}

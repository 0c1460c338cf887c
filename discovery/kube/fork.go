package kube

import (
	"iter"
	"maps"
	"slices"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// fork is the state of a Registry at the end of a task. It is never modified.
type fork struct {
	*discovery.State

	convert  converter
	exportTo func(*cache.Snapshot) []string
	known    known
}

var (
	_ discovery.SelectingFork = (*fork)(nil)
	_ discovery.Advisor       = (*fork)(nil)
)

// Fork implements discovery.Instance.
func (r *Registry) Fork() discovery.Fork { return r.settled.Load() }

// publishState makes the current state available to Fork.
func (r *Registry) publishState() {
	state := r.index.State()
	if last := r.settled.Load(); last == nil || last.State != state || last.known != r.known {
		r.settled.Store(&fork{State: state, convert: r.convert, exportTo: r.clusters.o.DefaultExportTo, known: r.known})
	}
}

// Apply implements discovery.Fork. Of the configuration only the mesh's default of exportTo
// matters.
func (f *fork) Apply(_, to *cache.Snapshot, xds discovery.XDSUpdater) discovery.Fork {
	if f.exportTo == nil {
		return f
	}
	exportTo := f.exportTo(to)
	if slices.Equal(exportTo, f.known.defaultExportTo()) {
		return f
	}
	return f.change(xds, func(k *known, m *marks) { k.setExportTo(&exportTo, m) })
}

// Select implements discovery.SelectingFork.
func (f *fork) Select(offers []discovery.Offer, xds discovery.XDSUpdater) discovery.Fork {
	return f.change(xds, func(k *known, m *marks) {
		for _, o := range offers {
			k.setWorkload(o.Workload.Namespace, o.Workload.Name, selectable(o.Workload, o.Event), m)
		}
	})
}

// change returns the fork after a change, and hands over the rows that differ.
func (f *fork) change(xds discovery.XDSUpdater, by func(*known, *marks)) discovery.Fork {
	out, m, index := *f, newMarks(), discovery.NewIndex(f.State)
	by(&out.known, &m)
	out.known.build(out.convert, &m)
	for _, key := range slices.Sorted(maps.Keys(m.services)) {
		index.Publish(xds, discovery.ShardKey{Provider: discovery.Kubernetes, Cluster: f.convert.cluster}, out.known.row(out.convert, key))
	}
	out.State = index.State()
	return &out
}

// Selects implements discovery.SelectingFork.
func (f *fork) Selects(namespace, name string) bool {
	for _, of := range f.known.selected.Prefix(namespace + "/") {
		if of.Value(name) != nil {
			return true
		}
	}
	return false
}

// Advise implements discovery.Advisor: there is nothing to say of objects of the mesh.
func (f *fork) Advise(config.Key) []discovery.Advice { return nil }

// AdvisedAnew implements discovery.Advisor: other registries have other advice for a WorkloadEntry
// that Services begin or cease to select.
func (f *fork) AdvisedAnew(from discovery.Fork) iter.Seq[config.Key] {
	before, _ := from.(*fork)
	if before == nil {
		before = &fork{}
	}
	return func(yield func(config.Key) bool) {
		for c := range pmap.Diff(before.known.selected, f.known.selected) {
			namespace, _ := cutKey(c.Key)
			for w := range pmap.Diff(c.Old, c.New) {
				if w.HasOld != w.HasNew && !yield(config.Key{Kind: schema.WorkloadEntry, Namespace: namespace, Name: w.Key}) {
					return
				}
			}
		}
	}
}

package serviceentry

import (
	"cmp"
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/config"
)

// serviceEntryHandler updates the catalog of ServiceEntries, and marks the hosts of the old
// and the new one.
func (s *Store) serviceEntryHandler(old, curr *config.Config, _ cache.Event) {
	if old != nil {
		if e := s.catalog.removeEntry(nameKey{old.Namespace, old.Name}); e != nil {
			s.markDirty(e)
		}
	}
	if curr == nil {
		return
	}
	e := s.convert.entry(curr)
	s.catalog.addEntry(e)
	s.markDirty(e)
}

// exportHandler converts the ServiceEntries without exportTo anew, if their default differs.
func (s *Store) exportHandler(_, to *cache.Snapshot) {
	if s.exportTo == nil {
		return
	}
	exportTo := s.exportTo(to)
	if slices.Equal(exportTo, s.convert.defaultExportTo) {
		return
	}
	s.convert.defaultExportTo = exportTo
	for e := range s.catalog.entries.Values() { // of the map as it was
		if len(e.object.Spec.(*networking.ServiceEntry).GetExportTo()) == 0 {
			s.serviceEntryHandler(e.object, e.object, cache.EventUpdate)
		}
	}
}

func (s *Store) markDirty(e *entry) {
	for hostname := range e.services {
		s.dirty[hostKey{hostname, e.object.Namespace}] = struct{}{}
	}
}

// workloadEntryHandler turns a WorkloadEntry into a workload, which is out of use if it is not healthy.
func (s *Store) workloadEntryHandler(old, curr *config.Config, _ cache.Event) {
	object := cmp.Or(curr, old)
	key := nameKey{object.Namespace, object.Name}
	if curr != nil && s.isChecked(curr) {
		s.checked = s.checked.Set(key.path(), curr)
	} else {
		s.checked = s.checked.Delete(key.path())
	}
	s.changeWorkloadEntry(key, curr)
}

// changeWorkloadEntry calls the workload handlers, then updates the selections of the
// ServiceEntries in the workload's namespace.
func (s *Store) changeWorkloadEntry(key nameKey, curr *config.Config) {
	before, after := s.catalog.workload(key, s.Cluster()), (*workload)(nil)
	if curr != nil {
		after = s.convert.workloadOf(curr)
		if s.checked.Value(key.path()) != nil && !s.isHealthy(curr) {
			after.instance.Endpoint.Health = discovery.OutOfUse
		}
	}
	if before.same(after) {
		return
	}
	if offered, gone := inUse(after), inUse(before); offered != nil || gone != nil {
		s.handlers.WorkloadChanged(cmp.Or(offered, gone).instance, eventOf(gone, offered))
	}
	s.moveWorkload(key.namespace, before, after)
	if after != nil && (before == nil || before.instance.Endpoint.Address != after.instance.Endpoint.Address) {
		s.arrived = append(s.arrived, after)
	}
}

// inUse returns the workload as other registries have it: nil if it is out of use.
func inUse(w *workload) *workload {
	if w == nil || w.instance.Endpoint.Health == discovery.OutOfUse {
		return nil
	}
	return w
}

func eventOf(before, after *workload) cache.Event {
	switch {
	case before == nil:
		return cache.EventAdd
	case after == nil:
		return cache.EventDelete
	}
	return cache.EventUpdate
}

// moveWorkload replaces the workload before by after, and marks the hosts of the
// ServiceEntries that select one of them. Either may be nil.
func (s *Store) moveWorkload(namespace string, before, after *workload) {
	s.catalog.replace(namespace, before, after)
	var concerned []*entry
	for _, w := range []*workload{before, after} {
		if w != nil {
			concerned = slices.AppendSeq(concerned, s.catalog.selecting(namespace, w.instance.Endpoint.Labels))
		}
	}
	for _, e := range concerned {
		s.catalog.updateSelection(e, before, after) // no effect the second time
		s.markDirty(e)
	}
}

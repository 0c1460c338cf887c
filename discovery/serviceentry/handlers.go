package serviceentry

import (
	"cmp"
	"slices"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/storage/config"
)

// serviceEntryHandler keeps the index of ServiceEntries.
func (s *Store) serviceEntryHandler(old, curr *config.Config, _ cache.Event) {
	if old != nil {
		s.removeEntry(nameKey{old.Namespace, old.Name})
	}
	if curr != nil {
		s.addEntry(s.convert.entry(curr))
	}
}

func (s *Store) addEntry(e *entry) {
	namespace, name := e.object.Namespace, e.object.Name
	s.entries[nameKey{namespace, name}] = e
	for hostname := range e.services {
		key := hostKey{hostname, namespace}
		s.byHost[key] = append(s.byHost[key], e)
		slices.SortFunc(s.byHost[key], compareEntries)
	}
	if e.selector != nil {
		put(s.selecting, namespace, name, e)
		for _, w := range s.workloads[namespace] {
			if e.selects(w) {
				e.selected = append(e.selected, selection{w, endpoints(e.spec, w.instance)})
			}
		}
		slices.SortFunc(e.selected, func(a, b selection) int { return config.Compare(a.object, b.object) })
	}
	s.markDirty(e)
}

func (s *Store) removeEntry(key nameKey) {
	e := s.entries[key]
	if e == nil {
		return
	}
	delete(s.entries, key)
	remove(s.selecting, key.namespace, key.name)
	for hostname := range e.services {
		key := hostKey{hostname, key.namespace}
		s.byHost[key] = slices.DeleteFunc(s.byHost[key], func(o *entry) bool { return o == e })
		if len(s.byHost[key]) == 0 {
			delete(s.byHost, key)
		}
	}
	s.markDirty(e)
}

func (s *Store) markDirty(e *entry) {
	for hostname := range e.services {
		s.dirty[hostKey{hostname, e.object.Namespace}] = struct{}{}
	}
}

func compareEntries(a, b *entry) int { return config.Compare(a.object, b.object) }

// workloadEntryHandler tells the workload handlers, then moves the workload in
// and out of the ServiceEntries of its namespace that select it.
func (s *Store) workloadEntryHandler(old, curr *config.Config, event cache.Event) {
	var before, after *workload
	if old != nil {
		before = s.workloads[old.Namespace][old.Name]
	}
	if curr != nil {
		after = s.convert.workloadOf(curr)
	}
	if before.same(after) {
		return
	}
	s.handlers.WorkloadChanged(cmp.Or(after, before).instance, event)
	s.keepWorkload(before, after)
	for _, e := range s.selecting[cmp.Or(after, before).object.Namespace] {
		if e.move(before, after) {
			s.markDirty(e)
		}
	}
	if after != nil && (before == nil || before.instance.Endpoint.Address != after.instance.Endpoint.Address) {
		s.arrived = append(s.arrived, after)
	}
}

func (s *Store) keepWorkload(before, after *workload) {
	if after == nil {
		remove(s.workloads, before.object.Namespace, before.object.Name)
		return
	}
	put(s.workloads, after.object.Namespace, after.object.Name, after)
}

func put[V any](m map[string]map[string]V, namespace, name string, v V) {
	if m[namespace] == nil {
		m[namespace] = map[string]V{}
	}
	m[namespace][name] = v
}

func remove[V any](m map[string]map[string]V, namespace, name string) {
	if delete(m[namespace], name); len(m[namespace]) == 0 {
		delete(m, namespace)
	}
}

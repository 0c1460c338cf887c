package serviceentry

import (
	"cmp"
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/labels"
)

// entry is one ServiceEntry, converted. Only the worker touches it.
type entry struct {
	object   *config.Config
	spec     *networking.ServiceEntry
	selector labels.Instance // nil: it does not select
	services map[host.Name][]*discovery.Service
	inline   []*discovery.Endpoint
	// selected are the workloads that it selects, in the order of
	// compareWorkloads, but for those moved since: of these moved has what is
	// selected now, a selection without a workload where nothing is.
	selected []selection
	moved    map[workloadKey]selection
	filed    label // where the catalog keeps the selector
}

func (e *entry) key() nameKey { return nameKey{e.object.Namespace, e.object.Name} }

// selection is a selected workload, with its endpoints for the entry's ports.
type selection struct {
	*workload
	endpoints []*discovery.Endpoint
}

// workload is what a ServiceEntry may select: a WorkloadEntry, or an instance of
// another registry. It is never modified.
type workload struct {
	key      workloadKey
	object   *config.Config // of a WorkloadEntry, else nil
	instance *discovery.WorkloadInstance
}

// workloadKey names a workload of a namespace.
type workloadKey struct {
	provider      discovery.Provider
	cluster, name string
}

// compareWorkloads is the order of the workloads of a namespace: WorkloadEntries
// first, by config.Compare, then the instances of other registries.
func compareWorkloads(a, b *workload) int {
	switch {
	case a.object != nil && b.object != nil:
		return config.Compare(a.object, b.object)
	case a.object != nil:
		return -1
	case b.object != nil:
		return 1
	}
	return cmp.Or(
		cmp.Compare(a.key.provider, b.key.provider),
		cmp.Compare(a.key.cluster, b.key.cluster),
		cmp.Compare(a.key.name, b.key.name),
	)
}

func (c converter) entry(object *config.Config) *entry {
	spec, _ := object.Spec.(*networking.ServiceEntry)
	e := &entry{object: object, spec: spec, services: c.services(object, spec)}
	if _, served := resolutionOf(spec); served {
		e.selector = selectorOf(spec)
	}
	if e.selector == nil {
		e.inline = c.inline(object, spec)
	}
	return e
}

func (c converter) workloadOf(object *config.Config) *workload {
	spec, _ := object.Spec.(*networking.WorkloadEntry)
	return &workload{
		key:    workloadKey{discovery.External, c.cluster, object.Name},
		object: object, instance: c.workload(&object.Meta, spec),
	}
}

// same says whether two workloads, nil being none, make the same endpoints in
// the same place.
func (w *workload) same(o *workload) bool {
	if w == nil || o == nil {
		return w == o
	}
	return compareWorkloads(w, o) == 0 && w.instance.Equal(o.instance)
}

// selects says whether the entry selects a workload of its namespace, nil being
// none.
func (e *entry) selects(w *workload) bool {
	return w != nil && e.selector != nil && e.selector.SubsetOf(w.instance.Endpoint.Labels)
}

// move makes the entry select curr where it selected old; either may be nil.
func (e *entry) move(old, curr *workload) {
	if e.moved == nil {
		e.moved = map[workloadKey]selection{}
	}
	if e.selects(old) {
		e.moved[old.key] = selection{}
	}
	if e.selects(curr) {
		e.moved[curr.key] = selection{curr, endpoints(e.spec, curr.instance)}
	}
}

// selections brings what is selected up to date and returns it.
func (e *entry) selections() []selection {
	if len(e.moved) == 0 {
		return e.selected
	}
	e.selected = slices.DeleteFunc(e.selected, func(s selection) bool {
		_, moved := e.moved[s.key]
		return moved
	})
	for _, s := range e.moved {
		if s.workload != nil {
			e.selected = append(e.selected, s)
		}
	}
	slices.SortFunc(e.selected, func(a, b selection) int { return compareWorkloads(a.workload, b.workload) })
	e.moved = nil
	return e.selected
}

// holds says whether the entry selects that very workload now.
func (e *entry) holds(w *workload) bool {
	selected := e.selections()
	i, ok := slices.BinarySearchFunc(selected, w, func(s selection, w *workload) int { return compareWorkloads(s.workload, w) })
	return ok && selected[i].workload == w
}

// selectedEndpoints are those of the workloads it selects. An instance of
// another registry at the address of a WorkloadEntry is left out: the entry
// describes it.
func (e *entry) selectedEndpoints() []*discovery.Endpoint {
	selected := e.selections()
	var own map[addressKey]bool // addresses of WorkloadEntries; made where there are instances
	if n := len(selected); n > 0 && selected[n-1].object == nil {
		own = map[addressKey]bool{}
	}
	var out []*discovery.Endpoint
	for _, s := range selected {
		if own != nil {
			address := s.addresses()[0]
			if s.object == nil && own[address] {
				continue
			}
			own[address] = own[address] || s.object != nil
		}
		out = append(out, s.endpoints...)
	}
	return out
}

// endpoints are those of a host of the entry: its own as listed, or those of
// the workloads it selects, the oldest first.
func (e *entry) endpoints(c converter, hostname host.Name) []*discovery.Endpoint {
	resolution, served := resolutionOf(e.spec)
	var out []*discovery.Endpoint
	switch {
	case !served:
		return nil
	case e.selector != nil:
		out = e.selectedEndpoints()
	case len(e.spec.GetEndpoints()) == 0 && resolution.IsDNS():
		out = c.hostEndpoints(e.object, e.spec, hostname)
	default:
		out = e.inline
	}
	if resolution == discovery.DNSRoundRobinLB {
		out = firstPerPort(out)
	}
	return out
}

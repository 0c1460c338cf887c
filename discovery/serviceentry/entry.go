package serviceentry

import (
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
	// selected are the workloads that it selects now, in the order of
	// config.Compare.
	selected []selection
}

// selection is a selected workload, with its endpoints for the entry's ports.
type selection struct {
	*workload
	endpoints []*discovery.Endpoint
}

// workload is one WorkloadEntry, converted. It is never modified.
type workload struct {
	object   *config.Config
	instance *discovery.WorkloadInstance
}

func (c converter) entry(object *config.Config) *entry {
	spec, _ := object.Spec.(*networking.ServiceEntry)
	e := &entry{
		object: object, spec: spec, selector: selectorOf(spec),
		services: c.services(object, spec),
	}
	if e.selector == nil {
		e.inline = c.inline(object, spec)
	}
	return e
}

func (c converter) workloadOf(object *config.Config) *workload {
	spec, _ := object.Spec.(*networking.WorkloadEntry)
	return &workload{object: object, instance: c.workload(&object.Meta, spec)}
}

// same says whether two workloads, nil being none, make the same endpoints in
// the same place.
func (w *workload) same(o *workload) bool {
	if w == nil || o == nil {
		return w == o
	}
	return config.Compare(w.object, o.object) == 0 && w.instance.Equal(o.instance)
}

// selects says whether the entry selects a workload of its namespace, nil being
// none.
func (e *entry) selects(w *workload) bool {
	return w != nil && e.selector != nil && e.selector.SubsetOf(w.instance.Endpoint.Labels)
}

// move makes the entry select curr where it selected old; either may be nil. It
// says whether the entry has to do with one of them.
func (e *entry) move(old, curr *workload) bool {
	was, is := e.selects(old), e.selects(curr)
	if was {
		if i, ok := e.search(old); ok {
			e.selected = slices.Delete(e.selected, i, i+1)
		}
	}
	if is {
		i, _ := e.search(curr)
		e.selected = slices.Insert(e.selected, i, selection{curr, endpoints(e.spec, curr.instance)})
	}
	return was || is
}

// search finds the place of a workload among those selected.
func (e *entry) search(w *workload) (int, bool) {
	return slices.BinarySearchFunc(e.selected, w, func(s selection, w *workload) int {
		return config.Compare(s.object, w.object)
	})
}

// holds says whether the entry selects that very workload now.
func (e *entry) holds(w *workload) bool {
	i, ok := e.search(w)
	return ok && e.selected[i].workload == w
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
		for _, s := range e.selected {
			out = append(out, s.endpoints...)
		}
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

package serviceentry

import (
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/labels"
)

// entry is one ServiceEntry, converted. It is never modified once the catalog has it.
type entry struct {
	order string // sorts like config.Compare of the object

	object   *config.Config
	spec     *networking.ServiceEntry
	selector labels.Instance // nil if it selects nothing
	services map[host.Name][]*discovery.Service
	inline   []*discovery.Endpoint
	filed    label // the label under which the catalog files the selector
}

func (e *entry) key() nameKey { return nameKey{e.object.Namespace, e.object.Name} }

// selection is a selected workload, with its endpoints for the entry's ports.
type selection struct {
	*workload
	endpoints []*discovery.Endpoint
}

// workload is what ServiceEntries select: a WorkloadEntry, or an instance of another registry.
// It is never modified. Its order sorts the workloads of a namespace: first WorkloadEntries by
// config.Compare, then the instances of other registries.
type workload struct {
	key      workloadKey
	order    string
	object   *config.Config // the WorkloadEntry; nil for an instance
	instance *discovery.WorkloadInstance
}

// workloadKey names a workload of a namespace.
type workloadKey struct {
	provider      discovery.Provider
	cluster, name string
}

func (k workloadKey) path() string { return string(k.provider) + "\x00" + k.cluster + "\x00" + k.name }

// The first byte of workload.order, for WorkloadEntries and for instances of other registries.
const entriesFirst, instancesLast = "0", "1"

func (c converter) entry(object *config.Config) *entry {
	spec, _ := object.Spec.(*networking.ServiceEntry)
	e := &entry{order: ageOf(object), object: object, spec: spec, services: c.services(object, spec)}
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
		order:  entriesFirst + ageOf(object),
		object: object, instance: c.workload(&object.Meta, spec),
	}
}

// same says whether two workloads have the same order and make the same endpoints; nil stands
// for no workload.
func (w *workload) same(o *workload) bool {
	if w == nil || o == nil {
		return w == o
	}
	return w.order == o.order && w.instance.Equal(o.instance)
}

// selects returns false for nil. The workload is of the namespace of the entry.
func (e *entry) selects(w *workload) bool {
	return w != nil && e.selector != nil && e.selector.SubsetOf(w.instance.Endpoint.Labels)
}

func (e *entry) selection(w *workload) *selection {
	return &selection{w, endpoints(e.spec, w.instance)}
}

// selectedEndpoints returns the endpoints of the workloads that an entry selects. A WorkloadEntry
// describes the instances of other registries at its address, which do not count. Of several
// instances at one address, such as pods in the network of their host, the first by registry,
// cluster and name counts.
func (c *catalog) selectedEndpoints(e *entry) []*discovery.Endpoint {
	selected := c.selected.Value(e.key().path())
	var addresses map[string]bool // those that are taken; nil if no instance is selected
	for range selected.From(instancesLast) {
		addresses = map[string]bool{}
		break
	}
	out := make([]*discovery.Endpoint, 0, selected.Len()*len(e.spec.GetPorts()))
	for s := range selected.Values() {
		if addresses != nil {
			address := s.address()
			if s.object == nil && addresses[address] {
				continue
			}
			addresses[address] = addresses[address] || s.object == nil || inUse(s.workload) != nil
		}
		out = append(out, s.endpoints...)
	}
	return out
}

// endpoints returns the endpoints of a host of an entry: the entry's own in their order, or
// the endpoints of the workloads it selects, the oldest first.
func (s *Store) endpoints(e *entry, hostname host.Name) []*discovery.Endpoint {
	resolution, served := resolutionOf(e.spec)
	var out []*discovery.Endpoint
	switch {
	case !served:
		return nil
	case e.selector != nil:
		out = s.catalog.selectedEndpoints(e)
	case len(e.spec.GetEndpoints()) == 0 && resolution.IsDNS():
		out = s.convert.hostEndpoints(e.object, e.spec, hostname)
	default:
		out = e.inline
	}
	if resolution == discovery.DNSRoundRobinLB {
		out = firstPerPort(out)
	}
	return out
}

package serviceentry

import (
	"net/netip"
	"slices"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/discovery"
)

// Peer is a registry that has workloads of its own, and selects workloads of
// others, as Kubernetes services do.
type Peer interface {
	AppendWorkloadHandler(discovery.WorkloadHandler)
	WorkloadInstanceHandler(*discovery.WorkloadInstance, cache.Event)
}

// Exchange has the store and a peer select each other's workloads, as far as
// the switches let them. Before Run of either only.
func (s *Store) Exchange(p Peer) {
	p.AppendWorkloadHandler(s.WorkloadInstanceHandler)
	if !s.off.OfferWorkloadEntries {
		s.AppendWorkloadHandler(p.WorkloadInstanceHandler)
	}
}

// addressKey is an address within a namespace.
type addressKey struct{ namespace, address string }

// instances are the workloads of other registries. Of several at one address
// the first, by registry, cluster and name, counts.
type instances struct {
	byKey     map[string]map[workloadKey]*workload // by namespace
	byAddress map[addressKey][]*workload           // in the order of compareWorkloads
}

// WorkloadInstanceHandler makes a workload instance of another registry one that
// the ServiceEntries of its namespace may select. Events that repeat what is
// known do nothing, whatever their kind; so do those of WorkloadEntries, and all
// where Switches turn this off. It has the shape of a discovery.WorkloadHandler,
// and may only be called on the worker.
func (s *Store) WorkloadInstanceHandler(instance *discovery.WorkloadInstance, event cache.Event) {
	if s.off.SelectInstances || instance.Provider == s.Provider() {
		return
	}
	key := workloadKey{instance.Provider, instance.Endpoint.Locality.Cluster, instance.Name}
	old, curr := s.instances.byKey[instance.Namespace][key], (*workload)(nil)
	if event != cache.EventDelete {
		curr = &workload{key: key, instance: instance}
	}
	if old.same(curr) {
		return
	}
	addresses := slices.Compact(slices.Concat(old.addresses(), curr.addresses())) // the one it leaves first
	before := make([]*workload, len(addresses))
	for i, address := range addresses {
		before[i] = s.instances.at(address)
	}
	s.instances.replace(instance.Namespace, old, curr)
	for i, address := range addresses {
		if after := s.instances.at(address); before[i] != after {
			s.moveWorkload(instance.Namespace, before[i], after)
		}
	}
}

// at is the workload that counts at an address, nil for none.
func (x *instances) at(key addressKey) *workload {
	if there := x.byAddress[key]; len(there) > 0 {
		return there[0]
	}
	return nil
}

func (x *instances) replace(namespace string, old, curr *workload) {
	if old != nil {
		remove(x.byKey, namespace, old.key)
	}
	if curr != nil {
		put(x.byKey, namespace, curr.key, curr)
	}
	for _, address := range old.addresses() {
		x.byAddress[address] = slices.DeleteFunc(x.byAddress[address], func(w *workload) bool { return w == old })
		if len(x.byAddress[address]) == 0 {
			delete(x.byAddress, address)
		}
	}
	for _, address := range curr.addresses() {
		x.byAddress[address] = append(x.byAddress[address], curr)
		slices.SortFunc(x.byAddress[address], compareWorkloads)
	}
}

// addresses is the address of a workload in its one spelling; none of nil.
func (w *workload) addresses() []addressKey {
	if w == nil {
		return nil
	}
	address := w.instance.Endpoint.Address
	if ip, err := netip.ParseAddr(address); err == nil {
		address = ip.Unmap().String()
	}
	return []addressKey{{w.instance.Namespace, address}}
}

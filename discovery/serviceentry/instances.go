package serviceentry

import (
	"net/netip"
	"slices"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/pmap"
)

// Peer is a registry that has its own workloads and whose services select those of others, as
// Kubernetes services do.
type Peer interface {
	AppendWorkloadHandler(discovery.WorkloadHandler)
	WorkloadInstanceHandler(*discovery.WorkloadInstance, cache.Event)
}

// ExchangeWorkloads makes the store and a peer select each other's workloads, unless Switches
// turn that off. Call it before Run of either.
func (s *Store) ExchangeWorkloads(p Peer) {
	p.AppendWorkloadHandler(s.WorkloadInstanceHandler)
	if !s.off.OfferWorkloadEntries {
		s.AppendWorkloadHandler(p.WorkloadInstanceHandler)
	}
}

type addressKey struct{ namespace, address string }

// instances holds the workloads of other registries. If several have one address, the first by
// registry, cluster and name counts.
type instances struct {
	byKey     pmap.Map[*workload]           // by namespace and workloadKey
	byAddress pmap.Map[pmap.Map[*workload]] // by addressKey, and then by workload.order
}

// WorkloadInstanceHandler makes a workload instance of another registry selectable by the
// ServiceEntries of its namespace. It ignores WorkloadEntries and events of any kind that
// repeat a known state; Switches can turn it off. It is a discovery.WorkloadHandler. Call it
// only on the worker.
func (s *Store) WorkloadInstanceHandler(instance *discovery.WorkloadInstance, event cache.Event) {
	if s.off.SelectInstances || instance.Provider == s.Provider() {
		return
	}
	key := workloadKey{instance.Provider, instance.Endpoint.Locality.Cluster, instance.Name}
	old, curr := s.instances.byKey.Value(instanceKey(instance.Namespace, key)), (*workload)(nil)
	if event != cache.EventDelete {
		curr = &workload{key: key, order: instancesLast + key.path(), instance: instance}
	}
	if old.same(curr) {
		return
	}
	addresses := slices.Compact(slices.Concat(old.addresses(), curr.addresses())) // the old address first
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

func instanceKey(namespace string, key workloadKey) string { return namespace + "\x00" + key.path() }

func (k addressKey) path() string { return k.namespace + "\x00" + k.address }

// at returns the workload that counts at an address, nil if there is none.
func (x *instances) at(key addressKey) *workload {
	for w := range x.byAddress.Value(key.path()).Values() {
		return w
	}
	return nil
}

func (x *instances) replace(namespace string, old, curr *workload) {
	if old != nil {
		x.byKey = x.byKey.Delete(instanceKey(namespace, old.key))
	}
	if curr != nil {
		x.byKey = x.byKey.Set(instanceKey(namespace, curr.key), curr)
	}
	for _, address := range old.addresses() {
		x.byAddress = pmap.Remove(x.byAddress, address.path(), old.order)
	}
	for _, address := range curr.addresses() {
		x.byAddress = pmap.Put(x.byAddress, address.path(), curr.order, curr)
	}
}

// addresses returns the canonical address of a workload, none for nil.
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

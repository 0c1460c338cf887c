package serviceentry

import (
	"net/netip"
	"slices"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/pmap"
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

// instances holds the workloads of other registries. Of several at one address the
// first counts, by registry, cluster and name.
type instances struct {
	byKey     pmap.Map[*workload]           // by namespace and workloadKey
	byAddress pmap.Map[pmap.Map[*workload]] // by addressKey, and then by workload.order
}

// WorkloadInstanceHandler makes a workload instance of another registry selectable by
// the ServiceEntries of its namespace. It ignores events that repeat a known state,
// whatever their kind, and events of WorkloadEntries; Switches can turn it off. It has
// the shape of a discovery.WorkloadHandler. Call it on the worker only.
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

func instanceKey(namespace string, key workloadKey) string { return namespace + "\x00" + key.path() }

func (k addressKey) path() string { return k.namespace + "\x00" + k.address }

// at is the workload that counts at an address, nil for none.
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

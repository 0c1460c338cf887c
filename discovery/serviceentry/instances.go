package serviceentry

import (
	"net/netip"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/discovery"
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

// WorkloadInstanceHandler makes a workload instance of another registry selectable by the
// ServiceEntries of its namespace. It ignores WorkloadEntries and events of any kind that
// repeat a known state; Switches can turn it off. It is a discovery.WorkloadHandler. Call it
// only on the worker.
func (s *Store) WorkloadInstanceHandler(instance *discovery.WorkloadInstance, event cache.Event) {
	if s.off.SelectInstances || instance.Provider == s.Provider() {
		return
	}
	key := workloadKey{instance.Provider, instance.Endpoint.Locality.Cluster, instance.Name}
	at := instance.Namespace + "\x00" + key.path()
	old, curr := s.instances.Value(at), (*workload)(nil)
	if event != cache.EventDelete {
		curr = &workload{key: key, order: instancesLast + key.path(), instance: instance}
	}
	if old.same(curr) {
		return
	}
	if curr == nil {
		s.instances = s.instances.Delete(at)
	} else {
		s.instances = s.instances.Set(at, curr)
	}
	s.moveWorkload(instance.Namespace, old, curr)
}

// address returns the canonical address of a workload.
func (w *workload) address() string {
	address := w.instance.Endpoint.Address
	if ip, err := netip.ParseAddr(address); err == nil {
		return ip.Unmap().String()
	}
	return address
}

package serviceentry

import (
	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/address"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/pmap"
)

// addressHandler takes over the addresses that the store assigned to hosts. (In Istio the
// status of the ServiceEntry has them.)
func (s *Store) addressHandler(from, to *cache.Snapshot) {
	s.assigned = to.Addresses()
	for change := range pmap.Diff(from.Addresses(), to.Addresses()) {
		assignment := change.New
		if !change.HasNew {
			assignment = change.Old
		}
		key := hostKey{host.Name(assignment.Host), assignment.Namespace}
		if s.catalog.rows.Value(key.path()).Len() > 0 {
			s.dirty[key] = struct{}{}
		}
	}
}

// servicesOf returns the services of a host of an entry, with their assigned addresses if the
// entry may have any.
func (s *Store) servicesOf(e *entry, key hostKey) []*discovery.Service {
	services := e.services[key.hostname]
	assignment := s.assigned.Value(address.Path(key.namespace, string(key.hostname)))
	if assignment == nil || !address.Eligible(e.object) {
		return services
	}
	out := make([]*discovery.Service, len(services))
	for i, service := range services {
		with := *service
		with.AutoAllocatedIPv4, with.AutoAllocatedIPv6 = assignment.IPv4.String(), assignment.IPv6.String()
		out[i] = &with
	}
	return out
}

package serviceentry

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/portolan-mesh/portolan/discovery"
)

// flush publishes the rows of all dirty hosts. Then it counts the reasons of the push: changed
// services, and proxies at addresses of newly selected workloads. It runs at the end of each
// task of the worker, before the commit that wakes the pusher.
func (s *Store) flush() {
	defer s.publishState()
	if len(s.dirty) == 0 && len(s.arrived) == 0 {
		return
	}
	changed := 0
	for _, key := range slices.SortedFunc(maps.Keys(s.dirty), compareHostKeys) {
		change := s.index.Publish(s.xds, discovery.ShardKey{Provider: s.Provider(), Cluster: s.Cluster()}, s.row(key))
		if change.Services {
			changed++
		}
		s.handlers.ServicesChanged(change)
	}
	clear(s.dirty)
	if changed > 0 {
		s.xds.ConfigUpdate(&discovery.PushRequest{
			Full: true, Reason: map[string]int{discovery.ReasonService: changed}, Start: time.Now(),
		})
	}
	s.tellProxies()
}

func (s *Store) tellProxies() {
	for _, w := range s.arrived {
		if _, err := netip.ParseAddr(w.instance.Endpoint.Address); err == nil && s.isSelected(w) {
			s.xds.ProxyUpdate(s.Cluster(), w.instance.Endpoint.Address)
		}
	}
	s.arrived = nil
}

func (s *Store) isSelected(w *workload) bool {
	for e := range s.catalog.selecting(w.object.Namespace, w.instance.Endpoint.Labels) {
		if s.catalog.contains(e, w) {
			return true
		}
	}
	return false
}

// row merges the ServiceEntries of one host, the oldest first.
func (s *Store) row(key hostKey) discovery.Row {
	row := discovery.Row{Hostname: key.hostname, Namespace: key.namespace}
	var oldest *entry
	entries := s.catalog.rows.Value(key.path())
	for e := range entries.Values() {
		oldest = cmp.Or(oldest, e)
		row.Services = append(row.Services, s.servicesOf(e, key)...)
		row.Endpoints = append(row.Endpoints, s.endpoints(e, key.hostname)...)
	}
	if entries.Len() > 1 {
		row.Endpoints = mergeEndpoints(row.Endpoints, oldest)
	}
	return row
}

// mergeEndpoints merges the endpoints of several ServiceEntries. If several have the same
// address for a port, the endpoint of the oldest counts. The oldest entry also decides how
// many endpoints a port may have.
func mergeEndpoints(in []*discovery.Endpoint, oldest *entry) []*discovery.Endpoint {
	type identity struct {
		address string
		port    int
		name    string
		number  int
		used    bool
	}
	seen := make(map[identity]bool, len(in))
	out := slices.DeleteFunc(in, func(e *discovery.Endpoint) bool {
		id := identity{e.Address, e.Port, e.ServicePortName, e.ServicePort, e.Health != discovery.OutOfUse}
		again := seen[id]
		seen[id] = true
		return again
	})
	if resolution, _ := resolutionOf(oldest.spec); resolution == discovery.DNSRoundRobinLB {
		out = firstPerPort(out)
	}
	return out
}

func compareHostKeys(a, b hostKey) int {
	return cmp.Or(cmp.Compare(a.hostname, b.hostname), cmp.Compare(a.namespace, b.namespace))
}

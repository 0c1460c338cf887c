package mesh

import (
	"iter"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/rows"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/xds/mesh/destination"
	"github.com/portolan-mesh/portolan/xds/mesh/routing"
	"github.com/portolan-mesh/portolan/xds/mesh/service"
)

// These queries serve operators: they look at a context without a proxy. Generators query
// a View instead.

// Host returns all services of one name, nil if there are none.
func (p *PushContext) Host(h host.Name) *HostRow {
	if p == nil {
		return nil
	}
	return hostRows.rowsOf(p).Value(string(h))
}

// HostRows iterates over the services of all names, in order.
func (p *PushContext) HostRows() iter.Seq[*HostRow] { return hostRows.rowsOf(p).Values() }

// EndpointsOf returns the endpoints of a service, nil for none.
func (p *PushContext) EndpointsOf(s *ServiceRow) *EndpointRow {
	return p.Inputs().Endpoints.Value(rows.Key(s.Hostname, s.Namespace))
}

// RulesOf returns the merged DestinationRules that apply to a host for some proxy, in
// precedence. In each namespace the most specific name that has a rule for all proxies
// counts, and so do rules for selected proxies of a name at least as specific.
func (p *PushContext) RulesOf(h host.Name) []*destination.Rule {
	var out []*destination.Rule
	found := map[string]host.Name{} // by namespace
	for name := range h.Covers() {
		for _, r := range p.permittedRules(h, name) {
			if most, ok := found[r.Namespace]; ok && most != name {
				continue
			}
			if r.Selector == nil {
				found[r.Namespace] = name
			}
			out = append(out, r)
		}
	}
	return out
}

// HostsMatching iterates over the hosts that a pattern (or the one name) covers.
func (p *PushContext) HostsMatching(pattern host.Name) iter.Seq[*HostRow] {
	return p.hostsMatching(pattern)
}

// RulesNamed returns the merged DestinationRules of exactly one name or pattern.
func (p *PushContext) RulesNamed(h host.Name) []*destination.Rule {
	if row := ruleRows.rowsOf(p).Value(string(h)); row != nil {
		return row.Rules
	}
	return nil
}

// VirtualService returns the one at a path, nil if there is none.
func (p *PushContext) VirtualService(path string) *routing.VirtualService {
	return virtualServiceRows.rowsOf(p).Value(path)
}

// Gateway returns the one at a path, nil if there is none.
func (p *PushContext) Gateway(path string) *routing.Gateway { return gatewayRows.rowsOf(p).Value(path) }

// Selects says whether a selector matches the labels of a proxy together with those of
// the workload at its addresses. The answer depends on the rows InstancesKey.
func (p *PushContext) Selects(selector labels.Instance, proxy *discovery.Proxy) bool {
	return selector.SubsetOf(p.placeOf(proxy).Labels)
}

// PlaceOf returns the proxy's place, from its own metadata and from the workload at its
// addresses. The answer depends on the rows InstancesKey.
func (p *PushContext) PlaceOf(proxy *discovery.Proxy) discovery.Place { return p.placeOf(proxy) }

// InstancesKey names the row of the endpoints at an address.
func InstancesKey(address string) RowKey { return RowKey{Instances, service.AddressKey(address)} }

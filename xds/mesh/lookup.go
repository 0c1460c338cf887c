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

// Queries of operators, which look at a context without a proxy. A generator queries a
// View instead.

// Host is all services of one name, nil where there are none.
func (p *PushContext) Host(h host.Name) *HostRow {
	if p == nil {
		return nil
	}
	return hostRows.of(p).Value(string(h))
}

// HostRows iterates over the services of all names, in order.
func (p *PushContext) HostRows() iter.Seq[*HostRow] { return hostRows.of(p).Values() }

// EndpointsOf returns the endpoints of a service, nil for none.
func (p *PushContext) EndpointsOf(s *ServiceRow) *EndpointRow {
	return p.Inputs().Endpoints.Value(rows.Key(s.Hostname, s.Namespace))
}

// RulesOf returns the merged DestinationRules that apply to a host for some proxy: in
// each namespace the rules of the most specific name that has one for all proxies, and
// those for some proxies of a name at least as specific, in the order of precedence.
func (p *PushContext) RulesOf(h host.Name) []*destination.Rule {
	var out []*destination.Rule
	found := map[string]host.Name{} // by namespace
	for name := range h.Covers() {
		row := ruleRows.of(p).Value(string(name))
		if row == nil {
			continue
		}
		for _, r := range row.Rules {
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

// RulesNamed are the merged DestinationRules of exactly one name or pattern.
func (p *PushContext) RulesNamed(h host.Name) []*destination.Rule {
	if row := ruleRows.of(p).Value(string(h)); row != nil {
		return row.Rules
	}
	return nil
}

// VirtualService finds one by its path, nil where there is none.
func (p *PushContext) VirtualService(path string) *routing.VirtualService {
	return virtualServiceRows.of(p).Value(path)
}

// Gateway finds one by its path, nil where there is none.
func (p *PushContext) Gateway(path string) *routing.Gateway { return gatewayRows.of(p).Value(path) }

// Selects says whether a selector selects a proxy, by its labels and those of the
// workload at its addresses, which are the rows InstancesKey.
func (p *PushContext) Selects(selector labels.Instance, proxy *discovery.Proxy) bool {
	return selector.SubsetOf(p.placeOf(proxy).Labels)
}

// PlaceOf is where a proxy is, by what it says itself, and what the workload at its addresses
// says, which are the rows InstancesKey.
func (p *PushContext) PlaceOf(proxy *discovery.Proxy) discovery.Place { return p.placeOf(proxy) }

// InstancesKey names the row of the endpoints at an address.
func InstancesKey(address string) RowKey { return RowKey{Instances, service.AddressKey(address)} }

package mesh

import (
	"iter"

	"github.com/portolan-mesh/portolan/storage/host"
)

// What operators ask of a context, from the point of view of no proxy. A
// generator asks a View instead.

// Host is all services of one name, nil where there are none.
func (p *PushContext) Host(h host.Name) *HostRow {
	if p == nil {
		return nil
	}
	return p.hosts.hosts.Value(string(h))
}

// HostRows iterates over the services of all names, in order.
func (p *PushContext) HostRows() iter.Seq[*HostRow] { return p.hosts.hosts.Values() }

// EndpointsOf are those of a service, nil where there are none.
func (p *PushContext) EndpointsOf(s *ServiceRow) *EndpointRow {
	return p.Inputs().Endpoints.Value(ServiceKey(s.Hostname, s.Namespace))
}

// RulesOf are the merged DestinationRules that apply to a host for some proxy:
// of each namespace those of the most specific name, in the order of precedence.
func (p *PushContext) RulesOf(h host.Name) []*Rule {
	var out []*Rule
	found := map[string]host.Name{} // by namespace
	for name := range h.Covers() {
		row := p.rules.rules.Value(string(name))
		if row == nil {
			continue
		}
		for _, r := range row.Rules {
			if most, ok := found[r.Namespace]; ok && most != name {
				continue
			}
			found[r.Namespace] = name
			out = append(out, r)
		}
	}
	return out
}

package mesh

import (
	"iter"
	"slices"
	"strings"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/xds/mesh/class"
	"github.com/portolan-mesh/portolan/xds/mesh/routing"
)

// passedServices has one row, the services of all hosts. A listener with AUTO_PASSTHROUGH
// needs it: it has a filter chain for each service that its proxies see.
type passedServices struct{ tableOf[*HostRow] }

var passedRows = passedServices{tableOf[*HostRow]{PassedServices}}

// changed adds the one row if any service differs.
func (t passedServices) changed(from, to *PushContext, keys []RowKey) []RowKey {
	if hostRows.rowsOf(from) != hostRows.rowsOf(to) {
		keys = append(keys, RowKey{t.table, ""})
	}
	return keys
}

func (passedServices) answer(v *View, _, _ string) any { return hostRows.rowsOf(v.push) }

// PassedServices iterates over the services, by host, to which a server with
// AUTO_PASSTHROUGH passes TLS on. The answer depends on the services of all hosts.
// (Istio: builtAutoPassthroughFilterChains.)
func (v *View) PassedServices(s *routing.Server) iter.Seq[*ServiceRow] {
	return func(yield func(*ServiceRow) bool) {
		if !s.PassesServices() {
			return
		}
		v.InNamespace(v.class.Namespace) // recorded, since it decides which services are visible
		for _, row := range v.ask(PassedServices, "", "").(pmap.Map[*HostRow]).All() {
			if s.HasHost(row.Hostname) {
				if of := v.service(row.Hostname, viaAny); passable(of) && !yield(of) {
					return
				}
			}
		}
	}
}

// PassesTLSTo says whether one of the proxy's servers with AUTO_PASSTHROUGH covers a host.
func (v *View) PassesTLSTo(h host.Name) bool {
	return v.class.Passed != "" && v.ask(Self, selfPassed, string(h)).(bool)
}

// PassedService returns the service of a host that the proxy sees, if a server with
// AUTO_PASSTHROUGH passes TLS on to it; else nil.
func (v *View) PassedService(h host.Name) *ServiceRow {
	if !v.PassesTLSTo(h) {
		return nil
	}
	if s := v.Service(h); passable(s) {
		return s
	}
	return nil
}

// passable says whether TLS may be passed on to a service: it is in the mesh, and clients
// can name its cluster in the SNI.
func passable(s *ServiceRow) bool {
	return s != nil && !s.Service().MeshExternal && s.Service().Resolution != discovery.DynamicDNS && !s.Hostname.IsWildcard()
}

// passedHosts returns the hosts of the given Gateways' servers with AUTO_PASSTHROUGH, in
// order.
func (p *PushContext) passedHosts(attached class.Attached) string {
	var out []string
	for path := range attached.Names(class.Gateway) {
		for _, s := range gatewayRows.rowsOf(p).Value(path).Servers {
			if s.PassesServices() {
				for _, h := range s.Hosts {
					out = append(out, string(h.Name))
				}
			}
		}
	}
	slices.Sort(out)
	return strings.Join(slices.Compact(out), class.Separator)
}

package listener

import (
	"cmp"
	"fmt"
	"iter"
	"slices"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"

	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/generate/cluster"
	"github.com/portolan-mesh/portolan/xds/generate/filter"
	"github.com/portolan-mesh/portolan/xds/generate/route"
	"github.com/portolan-mesh/portolan/xds/generate/transport"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/routing"
	"github.com/portolan-mesh/portolan/xds/names"
)

// streamNames yields the listeners that may appear or disappear with a change: those of
// servers with changed tcp or tls routes, and those with AUTO_PASSTHROUGH if a service
// changed.
func streamNames(v *mesh.View, d mesh.Delta, yield func(string) bool) bool {
	changed, hosts := map[string]bool{}, false
	for c := range d.GatewayStreams() {
		changed[c.Key] = true
	}
	if v.Class().Passed != "" {
		for range d.Hosts() {
			hosts = true
			break
		}
	}
	if len(changed) == 0 && !hosts {
		return true
	}
	concerned := func(s *routing.Server) bool {
		if s.PassesServices() {
			return hosts
		}
		gateway := s.Gateway.Name()
		return (s.RoutesTCP() || s.PassesTLS()) && (changed[routing.GatewayStreamKey(gateway, s.Port())] || changed[routing.GatewayStreamKey(gateway, 0)])
	}
	for _, l := range route.GatewayListeners(v) {
		if slices.ContainsFunc(l.Servers, concerned) && !yield(l.Name()) {
			return false
		}
	}
	return true
}

// plainBytes adds the chain of a plaintext TCP server, if it has a tcp route. That route
// gets all its connections.
func (e *edge) plainBytes(s *routing.Server) {
	if st, ok := e.tcpRoute(s); ok {
		e.list = append(e.list, e.chain(nil, st, envoy.FilterChainOptions{}))
	}
}

// terminatedBytes is like plainBytes for a server that terminates TLS. Without its certificate
// it has no chain either.
func (e *edge) terminatedBytes(s *routing.Server) {
	st, routed := e.tcpRoute(s)
	if !routed {
		return
	}
	if o, ok := e.terminateTLS(s, transport.ServerOptions{}); ok {
		e.list = append(e.list, e.chain(nil, st, o))
	}
}

// tcpRoute returns the tcp route of a server; false if there is none.
func (e *edge) tcpRoute(s *routing.Server) (stream, bool) {
	vs, i := e.view.GatewayTCPRoute(s)
	if vs == nil {
		return stream{}, false
	}
	return stream{vs: vs, route: vs.Spec.GetTcp()[i].GetRoute()}, true
}

// matchSNI restricts a chain to TLS with some SNI names. With "*" it takes TLS with any
// name, or none.
func matchSNI(names []string, o envoy.FilterChainOptions) envoy.FilterChainOptions {
	if o.ServerNames = names; slices.Contains(names, "*") {
		o.ServerNames, o.TransportProtocol = nil, envoy.TransportTLS
	}
	return o
}

// passTLS adds the chains of a server that passes TLS on: one for each match of its tls
// routes. The listener closes connections with any other name.
func (e *edge) passTLS(s *routing.Server) {
	for m := range e.tlsMatches(s) {
		e.list = append(e.list, e.chain(nil, stream{vs: m.Of, route: m.Destinations()}, matchSNI(m.Names, envoy.FilterChainOptions{})))
	}
}

// tlsMatches iterates over the matches of a server's tls routes. Each keeps only names that
// no earlier match has and that are hosts of no other server of the listener.
func (e *edge) tlsMatches(s *routing.Server) iter.Seq[routing.NameMatch] {
	return func(yield func(routing.NameMatch) bool) {
		for m := range e.view.GatewayNames(s) {
			m.Names = slices.DeleteFunc(m.Names, func(name string) bool {
				holder := e.of.ServerNamed(name)
				return e.taken[claim{name: name}] || holder != nil && holder != s
			})
			if len(m.Names) == 0 {
				continue
			}
			for _, name := range m.Names {
				e.markTaken(name)
			}
			if !yield(m) {
				return
			}
		}
	}
}

// markTaken marks an SNI name as taken.
func (e *edge) markTaken(name string) {
	if e.taken == nil {
		e.taken = map[claim]bool{}
	}
	e.taken[claim{name: name}] = true
}

// passServices adds the chains of a server that passes TLS on to services: one for each
// port of a service and of its subsets. A client's SNI must name the cluster, and its
// ALPN a protocol of the mesh; others match no chain. (Istio:
// builtAutoPassthroughFilterChains.)
func (e *edge) passServices(s *routing.Server) {
	for row := range e.view.PassedServices(s) {
		rule := e.view.Rule(row)
		subsets := []string{""}
		if rule != nil {
			for _, subset := range rule.Subsets {
				subsets = append(subsets, subset.GetName())
			}
		}
		for _, p := range row.Ports() {
			if !p.Protocol.IsServed() {
				continue
			}
			for _, subset := range subsets {
				name := names.SNICluster(uint32(p.Number), subset, string(row.Hostname))
				if e.taken[claim{name: name}] {
					continue
				}
				e.markTaken(name)
				e.refs = append(e.refs, name)
				e.list = append(e.list, envoy.FilterChain(envoy.FilterChainOptions{
					ServerNames: []string{name}, ApplicationProtocols: envoy.MeshProtocols(),
					Filters: filter.Network(e.view, e.kind, filter.NetworkOptions{Port: e.port}, filter.TCPProxy(e.view, e.kind, envoy.TCPProxyOptions{
						StatPrefix:   cmp.Or(cluster.StatName(e.view, row, subset, p), name),
						Clusters:     []envoy.WeightedCluster{{Name: name}},
						IdleTimeout:  e.view.IdleTimeout(row, subset, p.Number),
						HashSourceIP: rule.Hash(subset, p.Number).GetUseSourceIp(),
					})),
				}))
			}
		}
	}
}

// GatewayFieldOf returns the field of a VirtualService that a filter chain of a gateway's
// listener comes from: a tcp route, or a match of a tls route. It returns false if it
// comes from none.
func GatewayFieldOf(v *mesh.View, listener string, vs *routing.VirtualService, chain *listenerv3.FilterChain) (string, bool) {
	asked := chain.GetFilterChainMatch().GetServerNames()
	for _, l := range route.GatewayListeners(v) {
		if l.Name() != listener {
			continue
		}
		e := newEdge(v, listener, l)
		for _, s := range l.Servers {
			if s.RoutesTCP() && slices.Equal(asked, matchSNI(tlsNames(s), envoy.FilterChainOptions{}).ServerNames) {
				if of, i := v.GatewayTCPRoute(s); of == vs {
					return fmt.Sprintf("spec.tcp[%d]", i), true
				}
			}
			for m := range e.tlsMatches(s) {
				if m.Of == vs && slices.Equal(asked, matchSNI(m.Names, envoy.FilterChainOptions{}).ServerNames) {
					return fmt.Sprintf("spec.tls[%d].match[%d]", m.Route, m.Match), true
				}
			}
		}
	}
	return "", false
}

// tlsNames returns the SNI names of a server: its hosts, or none in plaintext.
func tlsNames(s *routing.Server) []string {
	if s.Kind().IsTLS() {
		return s.Names
	}
	return nil
}

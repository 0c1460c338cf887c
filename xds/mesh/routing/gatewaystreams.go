package routing

import (
	"iter"
	"slices"
	"strconv"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage/host"
)

// GatewayStreamKey is the key of a port of a gateway, 0 for routes of any port, in the
// table of tcp and tls routes of gateways.
func GatewayStreamKey(gateway string, port int) string { return gateway + "|" + strconv.Itoa(port) }

// GatewayStreamKeys are the GatewayStreamKey of the gateways and ports that its tcp and tls
// routes are for, in order.
func (vs *VirtualService) GatewayStreamKeys() []string {
	if vs == nil {
		return nil
	}
	var out []string
	add := func(gateway string, port int) bool {
		out = append(out, GatewayStreamKey(gateway, port))
		return true
	}
	for _, r := range vs.Spec.GetTcp() {
		gatewayPorts(vs, r.GetMatch())(add)
	}
	for _, r := range vs.Spec.GetTls() {
		gatewayPorts(vs, r.GetMatch())(add)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// StreamMatch is a match of a tcp or tls route. A gateway reads these fields of it, and the
// names of a tls match. (Istio: l4SingleMatch.)
type StreamMatch interface {
	GetPort() uint32
	GetGateways() []string
}

// gatewayPorts iterates over the gateways that a route of a VirtualService with some
// matches is for, without the mesh gateway, with the port in each, 0 for any.
func gatewayPorts[M StreamMatch](vs *VirtualService, matches []M) iter.Seq2[string, int] {
	return func(yield func(string, int) bool) {
		for _, gateway := range vs.Gateways {
			if gateway == MeshGateway {
				continue
			}
			if len(matches) == 0 && !yield(gateway, 0) {
				return
			}
			for _, m := range matches {
				if named := m.GetGateways(); len(named) > 0 && !slices.Contains(named, gateway) {
					continue
				}
				if !yield(gateway, int(m.GetPort())) {
					return
				}
			}
		}
	}
}

// ForGateways says whether a tcp or tls route of a VirtualService is for a gateway, by its
// matches.
func ForGateways[M StreamMatch](vs *VirtualService, matches []M) bool {
	for range gatewayPorts(vs, matches) {
		return true
	}
	return false
}

// isFor says whether a route of a VirtualService is for the gateway and port of a server, by
// its matches.
func isFor[M StreamMatch](s *Server, vs *VirtualService, matches []M) bool {
	for gateway, port := range gatewayPorts(vs, matches) {
		if gateway == s.Gateway.Name() && (port == 0 || port == s.Port()) {
			return true
		}
	}
	return false
}

// Takes says whether a tcp route of a VirtualService is for the server: by its hosts and
// gateways, and by the ports and gateways of its matches, of which nothing else counts on
// a gateway. (Istio: l4MultiMatch.)
func (s *Server) Takes(vs *VirtualService, r *networking.TCPRoute) bool {
	return s.RoutesTCP() && slices.ContainsFunc(vs.Hosts, func(h host.Name) bool { return s.Serves(vs, h) }) && isFor(s, vs, r.GetMatch())
}

// NameMatch is a match of a tls route of a VirtualService, as a server has it that passes
// TLS.
type NameMatch struct {
	Of           *VirtualService
	Route, Match int
	// Names are those that clients ask for: the sniHosts of the match, as far as the server
	// has them as hosts. Where a host of the server is narrower, it stands for the pattern.
	Names []string
}

// Destinations are where the route leads.
func (m NameMatch) Destinations() []*networking.RouteDestination {
	return m.Of.Spec.GetTls()[m.Route].GetRoute()
}

// NameMatches iterates over the matches of the tls routes of a VirtualService that are for
// the server, in order. Those of a server that passes no TLS are none. Of a match, the
// names, the port and the gateways count. (Istio: buildGatewayNetworkFiltersFromTLSRoutes,
// which lets a server have names that none of its hosts covers, if another name of the
// VirtualService is one.)
func (s *Server) NameMatches(vs *VirtualService) iter.Seq[NameMatch] {
	return func(yield func(NameMatch) bool) {
		if !s.PassesTLS() {
			return
		}
		for i, r := range vs.Spec.GetTls() {
			for k, m := range r.GetMatch() {
				if !s.IsFor(vs, m) {
					continue
				}
				if names := s.Common(vs, m.GetSniHosts()...); len(names) > 0 && !yield(NameMatch{vs, i, k, names}) {
					return
				}
			}
		}
	}
}

// IsFor says whether a match of a tls route of a VirtualService is for the gateway and port
// of the server.
func (s *Server) IsFor(vs *VirtualService, m *networking.TLSMatchAttributes) bool {
	return isFor(s, vs, []*networking.TLSMatchAttributes{m})
}

// Common are what names of a VirtualService and the hosts of the server have in common: the
// narrower of each two.
func (s *Server) Common(vs *VirtualService, asked ...string) []string {
	var out []string
	for _, name := range asked {
		for _, o := range s.Hosts {
			if common, meets := o.Meet(host.Name(name)); meets && o.Admits(vs) && !slices.Contains(out, string(common)) {
				out = append(out, string(common))
			}
		}
	}
	return out
}

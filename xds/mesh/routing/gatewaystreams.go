package routing

import (
	"iter"
	"slices"
	"strconv"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage/host"
)

// GatewayStreamKey is the key of a gateway's port in the table of tcp and tls routes of
// gateways. Port 0 is for routes of any port.
func GatewayStreamKey(gateway string, port int) string { return gateway + "|" + strconv.Itoa(port) }

// GatewayStreamKeys returns the GatewayStreamKey of each gateway and port for which it
// has tcp or tls routes, in order.
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

// StreamMatch is a match of a tcp or tls route. A gateway reads only these fields, and
// the sniHosts of a tls match. (Istio: l4SingleMatch.)
type StreamMatch interface {
	GetPort() uint32
	GetGateways() []string
}

// gatewayPorts iterates over the gateways, without the mesh gateway, for which a route
// with these matches is, each with its port, 0 for any.
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

// ForGateways says whether the matches of a tcp or tls route allow any gateway of its
// VirtualService, besides the mesh gateway.
func ForGateways[M StreamMatch](vs *VirtualService, matches []M) bool {
	for range gatewayPorts(vs, matches) {
		return true
	}
	return false
}

// isFor says whether the matches of a VirtualService's route allow the gateway and port
// of a server.
func isFor[M StreamMatch](s *Server, vs *VirtualService, matches []M) bool {
	for gateway, port := range gatewayPorts(vs, matches) {
		if gateway == s.Gateway.Name() && (port == 0 || port == s.Port()) {
			return true
		}
	}
	return false
}

// UsesTCPRoute says whether the server uses a tcp route of a VirtualService. The
// VirtualService's hosts and gateways decide, and the ports and gateways of the route's
// matches. A gateway ignores the rest of the matches. (Istio: l4MultiMatch.)
func (s *Server) UsesTCPRoute(vs *VirtualService, r *networking.TCPRoute) bool {
	return s.RoutesTCP() && slices.ContainsFunc(vs.InEffect(), func(h host.Name) bool { return s.Serves(vs, h) }) && isFor(s, vs, r.GetMatch())
}

// NameMatch is a match of a VirtualService's tls route, as it applies to a server that
// passes TLS on.
type NameMatch struct {
	Of           *VirtualService
	Route, Match int
	// Names are the match's sniHosts that the server has as hosts. A narrower host of the
	// server replaces the pattern that covers it.
	Names []string
}

// Destinations returns the destinations of the route.
func (m NameMatch) Destinations() []*networking.RouteDestination {
	return m.Of.Spec.GetTls()[m.Route].GetRoute()
}

// NameMatches iterates over the matches of a VirtualService's tls routes that apply to
// the server, in order. There are none if the server does not pass TLS on. Only the
// names, the port and the gateways of a match count. (Istio:
// buildGatewayNetworkFiltersFromTLSRoutes. It lets a server use names that none of its
// hosts covers, if the server covers another name of the VirtualService.)
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

// IsFor says whether a match of a VirtualService's tls route allows the gateway and port
// of the server.
func (s *Server) IsFor(vs *VirtualService, m *networking.TLSMatchAttributes) bool {
	return isFor(s, vs, []*networking.TLSMatchAttributes{m})
}

// Common intersects names of a VirtualService with the server's hosts: of each pair that
// overlaps, the narrower. It leaves out names for which the VirtualService has no effect.
func (s *Server) Common(vs *VirtualService, asked ...string) []string {
	var out []string
	for _, name := range asked {
		if slices.Contains(vs.Refused, host.Name(name)) {
			continue
		}
		for _, o := range s.Hosts {
			if common, meets := o.Overlap(host.Name(name)); meets && o.Admits(vs) && !slices.Contains(out, string(common)) {
				out = append(out, string(common))
			}
		}
	}
	return out
}

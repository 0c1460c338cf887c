package routing

import (
	"iter"
	"slices"
	"strconv"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage/host"
)

// GatewayTCPKey is the key of a port of a gateway, 0 for routes of any port, in the
// table of tcp routes of gateways.
func GatewayTCPKey(gateway string, port int) string { return gateway + "|" + strconv.Itoa(port) }

// GatewayTCPKeys are the GatewayTCPKey of the gateways and ports that its tcp routes are
// for, in order.
func (vs *VirtualService) GatewayTCPKeys() []string {
	if vs == nil {
		return nil
	}
	var out []string
	for _, r := range vs.Spec.GetTcp() {
		for gateway, port := range vs.gatewayPorts(r) {
			out = append(out, GatewayTCPKey(gateway, port))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// gatewayPorts iterates over the gateways that a tcp route of it is for, without the mesh
// gateway, with the port in each, 0 for any.
func (vs *VirtualService) gatewayPorts(r *networking.TCPRoute) iter.Seq2[string, int] {
	return func(yield func(string, int) bool) {
		for _, gateway := range vs.Gateways {
			if gateway == MeshGateway {
				continue
			}
			if len(r.GetMatch()) == 0 && !yield(gateway, 0) {
				return
			}
			for _, m := range r.GetMatch() {
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

// ForGateways says whether a tcp route of it is for a gateway, by its matches.
func (vs *VirtualService) ForGateways(r *networking.TCPRoute) bool {
	for range vs.gatewayPorts(r) {
		return true
	}
	return false
}

// Takes says whether a tcp route of a VirtualService is for the server: by its hosts and
// gateways, and by the ports and gateways of its matches, of which nothing else counts on
// a gateway. (Istio: l4MultiMatch.)
func (s *Server) Takes(vs *VirtualService, r *networking.TCPRoute) bool {
	if !s.PassesBytes() || !slices.ContainsFunc(vs.Hosts, func(h host.Name) bool { return s.Serves(vs, h) }) {
		return false
	}
	for gateway, port := range vs.gatewayPorts(r) {
		if gateway == s.Gateway.Name() && (port == 0 || port == s.Port()) {
			return true
		}
	}
	return false
}

package routing

import (
	"iter"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"
)

// StreamHosts returns the hosts whose connections the VirtualService routes on sidecars.
func (vs *VirtualService) StreamHosts() []string {
	if vs == nil || len(vs.Spec.GetTcp()) == 0 && len(vs.Spec.GetTls()) == 0 || !slices.Contains(vs.Gateways, MeshGateway) {
		return nil
	}
	var out []string
	for _, h := range vs.InEffect() {
		out = append(out, string(h))
	}
	return out
}

// streamRoutes iterates over the destinations of its tcp and tls routes.
func (vs *VirtualService) streamRoutes() iter.Seq[[]*networking.RouteDestination] {
	return func(yield func([]*networking.RouteDestination) bool) {
		for _, r := range vs.Spec.GetTcp() {
			if !yield(r.GetRoute()) {
				return
			}
		}
		for _, r := range vs.Spec.GetTls() {
			if !yield(r.GetRoute()) {
				return
			}
		}
	}
}

// resolveStreams completes the names in its tcp and tls routes.
func (vs *VirtualService) resolveStreams(resolve func(string) string) {
	for route := range vs.streamRoutes() {
		for _, d := range route {
			if d.GetDestination() != nil {
				d.Destination.Host = strings.ToLower(resolve(d.Destination.Host))
			}
		}
	}
	for _, r := range vs.Spec.GetTcp() {
		for _, m := range r.GetMatch() {
			resolveGateways(m.GetGateways(), vs.Config.Namespace)
		}
	}
	for _, r := range vs.Spec.GetTls() {
		for _, m := range r.GetMatch() {
			resolveGateways(m.GetGateways(), vs.Config.Namespace)
			for i, name := range m.GetSniHosts() {
				m.SniHosts[i] = strings.ToLower(name)
			}
		}
	}
}

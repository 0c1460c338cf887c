package routing

import (
	"slices"

	networking "istio.io/api/networking/v1alpha3"
)

// Imports are the hosts that a VirtualService of the mesh gateway makes known to sidecars:
// those that its routes may send traffic to, or copies of requests. Each has the namespaces
// of the sidecars that such a route is for, in order; nil for all.
func (vs *VirtualService) Imports() map[string][]string {
	if vs == nil || !slices.Contains(vs.Gateways, MeshGateway) {
		return nil
	}
	out := map[string][]string{}
	add := func(d *networking.Destination, from []string) {
		switch its, there := out[d.GetHost()]; {
		case there && (its == nil || from == nil):
			out[d.GetHost()] = nil
		case there:
			all := slices.Concat(its, from)
			slices.Sort(all)
			out[d.GetHost()] = slices.Compact(all)
		default:
			out[d.GetHost()] = from
		}
	}
	for _, r := range vs.Spec.GetHttp() {
		// The namespace does not count in a match that names gateways.
		from := sourceNamespaces(r.GetMatch(), func(m *networking.HTTPMatchRequest) bool { return len(m.GetGateways()) == 0 })
		for d := range destinations(r) {
			add(d, from)
		}
	}
	for _, r := range vs.Spec.GetTcp() {
		for _, d := range r.GetRoute() {
			add(d.GetDestination(), sourceNamespaces(r.GetMatch(), nil))
		}
	}
	for _, r := range vs.Spec.GetTls() {
		for _, d := range r.GetRoute() {
			add(d.GetDestination(), sourceNamespaces(r.GetMatch(), nil))
		}
	}
	return out
}

// sourceNamespaces are the namespaces of the sidecars that a route is for, nil for all. If
// counts is given, a match for which it is false is for all.
func sourceNamespaces[M interface{ GetSourceNamespace() string }](matches []M, counts func(M) bool) []string {
	var out []string
	for _, m := range matches {
		if m.GetSourceNamespace() == "" || counts != nil && !counts(m) {
			return nil
		}
		out = append(out, m.GetSourceNamespace())
	}
	slices.Sort(out)
	return slices.Compact(out)
}

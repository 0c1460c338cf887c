package virtualhost

import (
	"maps"
	"slices"

	"github.com/portolan-mesh/portolan/xds/mesh"
)

// DestinationsTo returns, sorted, the clusters that RoutesTo may name if only weights and
// subsets change. These are the clusters that the VirtualService names, with any weight.
// If it names a subset, all subsets of that service are included. There are none if no
// VirtualService applies.
func DestinationsTo(v *mesh.View, listener mesh.EgressListener, s *mesh.ServiceRow, port int) []string {
	vs := v.VirtualServiceAt(listener, s.Hostname)
	if vs == nil {
		return nil
	}
	t := translator{view: v, gateway: mesh.MeshGateway, port: port}
	names := map[string]struct{}{}
	for _, http := range vs.Spec.GetHttp() {
		for _, d := range http.GetRoute() {
			at := t.destination(d.GetDestination())
			names[at.cluster()] = struct{}{}
			for _, subset := range t.siblings(at) {
				at.subset = subset
				names[at.cluster()] = struct{}{}
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// siblings returns all subsets of the destination's service, if the destination is a
// subset.
func (t translator) siblings(d destination) []string {
	if d.subset == "" || d.service == nil {
		return nil
	}
	rule := t.view.Rule(d.service)
	if rule == nil {
		return nil
	}
	var out []string
	for _, subset := range rule.Subsets {
		out = append(out, subset.GetName())
	}
	return out
}

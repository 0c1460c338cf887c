package virtualhost

import (
	"slices"

	"github.com/portolan-mesh/portolan/xds/mesh"
)

// IdleTo are the clusters that the routes of RoutesTo name and send nothing to, each
// once: destinations of weight 0 beside others.
func IdleTo(v *mesh.View, listener mesh.EgressListener, s *mesh.ServiceRow, port int) []string {
	vs := v.VirtualServiceAt(listener, s.Hostname)
	if vs == nil {
		return nil
	}
	t := translator{view: v, gateway: mesh.MeshGateway, port: port}
	var out []string
	for _, http := range vs.Spec.GetHttp() {
		if len(http.GetRoute()) < 2 {
			continue // the only one has everything, whatever its weight
		}
		for _, d := range http.GetRoute() {
			name := t.destination(d.GetDestination()).cluster()
			if d.GetWeight() <= 0 && !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	return out
}

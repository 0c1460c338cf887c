package route

import (
	"iter"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/mesh"
)

// ListenerOf finds the egress listener that carries a port: the one that names
// it, else the one that takes the rest; false where there is neither.
func ListenerOf(v *mesh.View, port int) (mesh.EgressListener, bool) {
	var rest *mesh.EgressListener
	for _, l := range v.Egress() {
		if l.Port == port {
			return l, true
		}
		if l.Port == 0 && rest == nil {
			rest = &l
		}
	}
	if rest == nil {
		return mesh.EgressListener{}, false
	}
	return *rest, true
}

// restOf takes requests to hosts that nothing is known of: it lets them pass
// where the proxy may, else it answers 502.
func restOf(v *mesh.View) *routev3.VirtualHost {
	name := envoy.BlockAllVirtualHostName
	route := envoy.RouteOptions{DirectResponse: &envoy.DirectResponse{Status: 502}}
	if v.AllowAny() {
		name = envoy.AllowAnyVirtualHostName
		route = envoy.RouteOptions{Forward: &envoy.Forward{
			Clusters: []envoy.WeightedCluster{{Name: envoy.PassthroughClusterName}},
		}}
	}
	route.Name = name
	return envoy.VirtualHost(envoy.VirtualHostOptions{
		Name: name, Domains: []string{"*"}, Routes: []*routev3.Route{envoy.Route(route)},
	})
}

// ChangedPorts are the ports of the hosts that may have come into or gone out of
// a sidecar's sight, with what they are now and with what they were, each once.
func ChangedPorts(v *mesh.View, d mesh.Delta) iter.Seq[int] {
	return func(yield func(int) bool) {
		seen := map[int]bool{}
		for row := range ChangedHosts(v, d) {
			for _, s := range row.Services {
				for _, p := range s.Ports() {
					if seen[p.Number] {
						continue
					}
					seen[p.Number] = true
					if !yield(p.Number) {
						return
					}
				}
			}
		}
	}
}

// ChangedHosts are the hosts that may have come into or gone out of a sidecar's
// sight, as they are now and as they were; where all is looked at, those that it sees.
func ChangedHosts(v *mesh.View, d mesh.Delta) iter.Seq[*mesh.HostRow] {
	return func(yield func(*mesh.HostRow) bool) {
		for c := range d.Hosts() {
			if d.Whole && !v.Sees(c.New) {
				continue
			}
			for _, row := range []*mesh.HostRow{c.Old, c.New} {
				if row != nil && !yield(row) {
					return
				}
			}
		}
		if d.Whole {
			return
		}
		v.ImportedHosts(d)(yield)
	}
}

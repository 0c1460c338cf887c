package route

import (
	"iter"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/names"
)

// ListenerOf returns the egress listener that carries a port: the one for this port, else
// the one for the remaining ports; false if there is neither.
func ListenerOf(v *mesh.View, port int) (mesh.EgressListener, bool) {
	var rest *mesh.EgressListener
	for _, l := range v.Egress() {
		if l.Socket != "" {
			continue
		}
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

// RestCluster is the cluster for connections to unknown hosts, and for requests to
// unknown hosts that the proxy does not resolve: the Sidecar's egress proxy, or the
// original destination. It is empty if the proxy may not let them pass.
func RestCluster(v *mesh.View) string {
	if !v.AllowAny() {
		return ""
	}
	if p := v.EgressProxy(); p != nil {
		return names.Cluster(names.Outbound, uint32(p.Port), p.Subset, string(p.Host))
	}
	return names.PassthroughCluster
}

// restOf makes the virtual host for requests to unknown hosts. If the proxy may let them
// pass, it forwards them, resolving their host if it should. Else it answers 502.
func restOf(v *mesh.View) *routev3.VirtualHost {
	name := names.BlockAllVirtualHost
	route := envoy.RouteOptions{DirectResponse: &envoy.DirectResponse{Status: 502}}
	cluster := RestCluster(v)
	if cluster != "" {
		name = names.AllowAnyVirtualHost
	}
	if v.AllowAnyDynamicDNS() {
		name, cluster = names.AllowAnyDynamicDNSVirtualHost, names.AllowAnyDynamicDNSCluster
	}
	if cluster != "" {
		route = envoy.RouteOptions{Forward: &envoy.Forward{Clusters: []envoy.WeightedCluster{{Name: cluster}}}}
	}
	route.Name = name
	return envoy.VirtualHost(envoy.VirtualHostOptions{
		Name: name, Domains: []string{"*"}, Routes: []envoy.RouteOptions{route},
	})
}

// ChangedPorts iterates over the ports, each once, of the hosts that a sidecar may have
// begun or ceased to see. It includes their former ports.
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

// ChangedHosts iterates over the hosts that a sidecar's egress listeners may have begun
// or ceased to see, in their old and new states. For a Whole delta it iterates over the
// hosts that the sidecar sees.
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
	}
}

package route

import (
	"cmp"
	"iter"
	"slices"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/names"
)

// ListenersOf returns the egress listeners that carry a port: those for this port, which differ
// in their addresses, else the one for the remaining ports; none if there is neither.
func ListenersOf(v *mesh.View, port int) []mesh.EgressListener {
	var own, rest []mesh.EgressListener
	for _, l := range v.Egress() {
		switch {
		case l.Socket != "":
		case l.Port == port:
			own = append(own, l)
		case l.Port == 0 && rest == nil:
			rest = []mesh.EgressListener{l}
		}
	}
	if own == nil {
		return rest
	}
	return own
}

// ListenerOf returns the first of ListenersOf, false if there is none.
func ListenerOf(v *mesh.View, port int) (mesh.EgressListener, bool) {
	if all := ListenersOf(v, port); len(all) > 0 {
		return all[0], true
	}
	return mesh.EgressListener{}, false
}

// Beside returns the egress listeners whose port another before them has, too, and which so have
// a route configuration of their own.
func Beside(v *mesh.View) []mesh.EgressListener {
	return slices.DeleteFunc(v.Egress(), func(l mesh.EgressListener) bool { return l.Routes == "" })
}

// NameOf returns the name of the route configuration of an egress listener for a port.
func NameOf(l mesh.EgressListener, port int) string {
	return cmp.Or(l.Routes, sidecarName(port))
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
		Name: name, Domains: []string{"*"}, Routes: []envoy.RouteOptions{route}, Uncounted: !v.ProxyConfig().CountsAttempts(),
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

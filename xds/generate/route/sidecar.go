package route

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/mesh"
)

// foreignPort is the one port on which VirtualServices may route hosts that are
// no services. (Istio: legacy, and relied upon.)
const foreignPort = 80

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

// Carries says whether requests are routed by HTTP on a port of an egress
// listener: one that is for HTTP, or one for all ports that sees a service which
// speaks it there.
func Carries(v *mesh.View, listener mesh.EgressListener, port int) bool {
	if listener.Port != 0 {
		return listener.Protocol.IsHTTP()
	}
	for name, use := range v.PortHosts(port) {
		if use.HTTP && httpService(v, listener, port, name) != nil {
			return true
		}
	}
	return false
}

// httpService is the service of a host that the listener sees and that speaks
// HTTP on the port, nil for none.
func httpService(v *mesh.View, listener mesh.EgressListener, port int, name string) *mesh.ServiceRow {
	row := v.ServiceAt(listener, host.Name(name))
	if row == nil {
		return nil
	}
	if p, ok := row.Port(port); !ok || !p.Protocol.IsHTTP() {
		return nil
	}
	return row
}

// sidecarHosts are the virtual hosts of a port, in the order of their names, and
// what takes the rest.
func sidecarHosts(v *mesh.View, listener mesh.EgressListener, port int) []*routev3.VirtualHost {
	b := sidecarBuilder{
		translator: translator{view: v, gateway: mesh.MeshGateway, port: port},
		listener:   listener,
		taken:      map[string]bool{"*": true},
	}
	b.collect()
	var out []*routev3.VirtualHost
	for _, s := range b.services {
		out = append(out, b.virtualHost(string(s.Hostname), b.routesTo(s), s.Addresses(b.view.Shape())))
	}
	if port == foreignPort {
		out = append(out, b.foreignHosts()...)
	}
	slices.SortFunc(out, func(a, b *routev3.VirtualHost) int { return cmp.Compare(a.Name, b.Name) })
	return append(out, b.rest())
}

// sidecarBuilder makes the virtual hosts of one port.
type sidecarBuilder struct {
	translator
	listener mesh.EgressListener
	services []*mesh.ServiceRow // in the order of their hosts
	// taken are the domains, in lower case, that belong to a virtual host already:
	// the first one keeps a domain, and a service's name outranks every address.
	taken map[string]bool
}

func (b *sidecarBuilder) collect() {
	for name, use := range b.view.PortHosts(b.port) {
		if !use.HTTP {
			continue
		}
		domain := strings.ToLower(name) // as Envoy compares them
		if s := httpService(b.view, b.listener, b.port, name); s != nil && !b.taken[domain] {
			b.services = append(b.services, s)
			b.taken[domain] = true
		}
	}
}

// routesTo are the routes of requests to a service: those of the VirtualService
// that applies, or straight to it.
func (b *sidecarBuilder) routesTo(s *mesh.ServiceRow) []*routev3.Route {
	if vs := b.view.VirtualServiceAt(b.listener, s.Hostname); vs != nil {
		if routes := b.routes(vs); len(routes) > 0 {
			return routes
		}
	}
	return []*routev3.Route{b.straight(s)}
}

// straight is the route to a service that no VirtualService is about.
func (b *sidecarBuilder) straight(s *mesh.ServiceRow) *routev3.Route {
	to := destination{hostname: string(s.Hostname), port: b.port, service: s}
	policies := to.hashPolicies(b.view)
	return b.decorated(envoy.Route(envoy.RouteOptions{Forward: &envoy.Forward{
		Clusters:     []envoy.WeightedCluster{{Name: to.cluster()}},
		HashPolicies: policies,
		Retry:        envoy.Retry(retry(nil, len(policies) > 0)),
	}}), "")
}

// virtualHost makes the host of a name, which is taken already, and of those
// addresses that are not.
func (b *sidecarBuilder) virtualHost(name string, routes []*routev3.Route, addresses []string) *routev3.VirtualHost {
	domains := []string{name}
	for _, address := range addresses {
		if ip, err := netip.ParseAddr(address); err == nil && ip.Is6() {
			address = "[" + address + "]"
		}
		if !b.taken[address] {
			b.taken[address] = true
			domains = append(domains, address)
		}
	}
	return envoy.VirtualHost(envoy.VirtualHostOptions{
		Name: envoy.HostPort(name, uint32(b.port)), Domains: domains, Routes: routes,
	})
}

// foreignHosts are the hosts that VirtualServices route and that are no services
// of the port: exact names that none of them has, patterns that cover none.
func (b *sidecarBuilder) foreignHosts() []*routev3.VirtualHost {
	var out []*routev3.VirtualHost
	for h := range b.view.RouteHosts(mesh.MeshGateway) {
		if b.taken[string(h)] || h.IsWildcard() && b.covers(h) {
			continue
		}
		vs := b.view.VirtualServiceNamed(b.listener, h)
		if vs == nil {
			continue
		}
		if routes := b.routes(vs); len(routes) > 0 {
			b.taken[string(h)] = true
			out = append(out, b.virtualHost(string(h), routes, nil))
		}
	}
	return out
}

func (b *sidecarBuilder) covers(pattern host.Name) bool {
	return slices.ContainsFunc(b.services, func(s *mesh.ServiceRow) bool { return s.Hostname.SubsetOf(pattern) })
}

// rest takes requests to hosts that nothing is known of: it lets them pass where
// the proxy may, else it answers 502.
func (b *sidecarBuilder) rest() *routev3.VirtualHost {
	name := envoy.BlockAllVirtualHostName
	route := envoy.RouteOptions{DirectResponse: &envoy.DirectResponse{Status: 502}}
	if b.view.AllowAny() {
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

package route

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/mesh"
)

// GatewayServers are the servers of a gateway that are routed by HTTP in
// plaintext, the oldest first. Those that share an address and a port are one
// listener, with one route configuration of the name that GatewayName tells.
func GatewayServers(v *mesh.View) []*mesh.Server {
	gateway := v.Gateway()
	if gateway == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(gateway.Servers), func(s *mesh.Server) bool {
		return !discovery.ParseProtocol(s.Spec.GetPort().GetProtocol()).IsHTTP() || envoy.IsUnix(s.Spec.GetBind())
	})
}

// GatewayName names the routes of a server.
func GatewayName(s *mesh.Server) string {
	return envoy.GatewayHTTPRouteConfigName(uint32(s.Port()), s.Spec.GetBind())
}

func gatewayNames(v *mesh.View, yield func(string) bool) {
	for _, s := range GatewayServers(v) {
		if !yield(GatewayName(s)) {
			return
		}
	}
}

func serversOf(v *mesh.View, name string) []*mesh.Server {
	return slices.DeleteFunc(GatewayServers(v), func(s *mesh.Server) bool { return GatewayName(s) != name })
}

// gatewayHosts are the virtual hosts of servers that share a port, in the order
// of their names: for each server, every name in which it and a VirtualService
// bound to its gateway meet. Where several meet in one name their routes follow
// one another, those that take every request last. (Istio:
// buildGatewayHTTPRouteConfig.)
func gatewayHosts(v *mesh.View, servers []*mesh.Server) []*routev3.VirtualHost {
	hosts := gatewayHostMap{}
	for _, s := range servers {
		t := translator{view: v, gateway: s.Gateway.Name(), port: s.Port()}
		for _, b := range t.bound(s) {
			routes := t.routes(b.vs)
			if len(routes) == 0 {
				continue
			}
			for _, name := range b.names {
				h := hosts.get(name)
				h.RequireTLS = h.RequireTLS || httpsRedirect(s)
				if from := (origin{t.gateway, b.vs}); !h.has[from] {
					h.has[from] = true
					h.Routes = append(h.Routes, routes...)
				}
			}
		}
		if httpsRedirect(s) {
			for _, h := range serverHosts(s) {
				hosts.get(h.name).RequireTLS = true
			}
		}
	}
	port := uint32(servers[0].Port())
	if len(hosts) == 0 {
		return []*routev3.VirtualHost{envoy.VirtualHost(envoy.VirtualHostOptions{
			Name: envoy.BlackHoleVirtualHostName(port), Domains: []string{"*"},
		})}
	}
	var out []*routev3.VirtualHost
	for _, name := range slices.Sorted(maps.Keys(hosts)) {
		h := hosts[name]
		h.Name, h.Domains = envoy.HostPort(string(name), port), []string{string(name)}
		slices.SortStableFunc(h.Routes, catchAllLast)
		out = append(out, envoy.VirtualHost(h.VirtualHostOptions))
	}
	return out
}

// gatewayHost is a virtual host in the making, and whose routes it has.
type gatewayHost struct {
	envoy.VirtualHostOptions
	has map[origin]bool
}

type origin struct {
	gateway string
	vs      *mesh.VirtualService
}

type gatewayHostMap map[host.Name]*gatewayHost

func (m gatewayHostMap) get(name host.Name) *gatewayHost {
	if m[name] == nil {
		m[name] = &gatewayHost{has: map[origin]bool{}}
	}
	return m[name]
}

func catchAllLast(a, b *routev3.Route) int {
	rank := func(r *routev3.Route) int {
		if envoy.CatchAll(r.GetMatch()) {
			return 1
		}
		return 0
	}
	return cmp.Compare(rank(a), rank(b))
}

func httpsRedirect(s *mesh.Server) bool { return s.Spec.GetTls().GetHttpsRedirect() }

// serverHost is a host of a server, and the namespace that VirtualServices for
// it must be of, "*" for any.
type serverHost struct {
	namespace string
	name      host.Name
}

func serverHosts(s *mesh.Server) []serverHost {
	var out []serverHost
	for _, text := range s.Spec.GetHosts() {
		namespace, name, ok := strings.Cut(text, "/")
		if !ok {
			namespace, name = "*", text
		}
		if namespace == "." {
			namespace = s.Gateway.Config.Namespace
		}
		out = append(out, serverHost{namespace, host.Name(strings.ToLower(name))})
	}
	return out
}

// bound is a VirtualService and the names in which it meets a server.
type bound struct {
	vs    *mesh.VirtualService
	names []host.Name
}

// bound finds the VirtualServices of a server, in precedence.
func (t translator) bound(s *mesh.Server) []bound {
	found := map[*mesh.VirtualService][]host.Name{}
	servers := serverHosts(s)
	for h := range t.view.RouteHosts(t.gateway) {
		if !slices.ContainsFunc(servers, func(o serverHost) bool { return o.name.Matches(h) }) {
			continue
		}
		for _, vs := range t.view.VirtualServices(t.gateway, h) {
			for _, o := range servers {
				if name, ok := o.meet(vs, h); ok && !slices.Contains(found[vs], name) {
					found[vs] = append(found[vs], name)
				}
			}
		}
	}
	out := make([]bound, 0, len(found))
	for vs, names := range found {
		out = append(out, bound{vs, names})
	}
	slices.SortFunc(out, func(a, b bound) int { return t.view.CompareVirtualServices(a.vs, b.vs) })
	return out
}

// meet is the narrower of a server's host and a host of a VirtualService, where
// one covers the other.
func (o serverHost) meet(vs *mesh.VirtualService, h host.Name) (host.Name, bool) {
	if o.namespace != "*" && o.namespace != vs.Config.Namespace {
		return "", false
	}
	switch {
	case h.SubsetOf(o.name):
		return h, true
	case o.name.SubsetOf(h):
		return o.name, true
	}
	return "", false
}

package virtualhost

import (
	"cmp"
	"slices"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/generate/route"
	"github.com/portolan-mesh/portolan/xds/mesh"
)

// gatewayNames are the hosts that may have come or gone: every name in which a
// server and a changed route of its gateway may meet, and with the servers all
// that these name themselves.
func gatewayNames(v *mesh.View, d mesh.Delta, yield func(string) bool) {
	for _, s := range route.GatewayServers(v) {
		hosts := serverHosts(s)
		each := func(h host.Name) bool {
			return yield(route.HostName(route.GatewayName(s), string(h), s.Port()))
		}
		for _, o := range hosts {
			if d.Whole && !each(o.name) {
				return
			}
		}
		for c := range d.Routes() {
			name, ok := strings.CutPrefix(c.Key, mesh.RouteKey(s.Gateway.Name(), ""))
			if !ok {
				continue
			}
			for _, o := range hosts {
				if met, ok := o.meet(host.Name(name)); ok && !each(met) {
					return
				}
			}
		}
	}
}

// gatewayHost is the virtual host of a name on servers that share a port, nil
// where none of them has it: the routes of every VirtualService that meets a
// server in this name follow one another, those that take every request last.
// (Istio: buildGatewayHTTPRouteConfig.)
func gatewayHost(v *mesh.View, servers []*mesh.Server, name host.Name) *envoy.VirtualHostOptions {
	out := &envoy.VirtualHostOptions{Domains: []string{string(name)}}
	exists := false
	has := map[origin]bool{}
	for _, s := range servers {
		t := translator{view: v, gateway: s.Gateway.Name(), port: s.Port()}
		named := slices.ContainsFunc(serverHosts(s), func(o serverHost) bool { return o.name == name })
		met := named && httpsRedirect(s)
		for _, vs := range t.meeting(s, name) {
			routes := t.routes(vs)
			if len(routes) == 0 {
				continue
			}
			met = true
			if from := (origin{t.gateway, vs}); !has[from] {
				has[from] = true
				out.Routes = append(out.Routes, routes...)
			}
		}
		exists = exists || met
		out.RequireTLS = out.RequireTLS || met && httpsRedirect(s)
	}
	if !exists {
		return nil
	}
	slices.SortStableFunc(out.Routes, catchAllLast)
	return out
}

// origin is whose routes a virtual host has.
type origin struct {
	gateway string
	vs      *mesh.VirtualService
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

// meeting are the VirtualServices that meet a server in a name, in precedence:
// those for the name itself where the server's host covers it, and where it is the
// server's host those for all that covers it.
func (t translator) meeting(s *mesh.Server, name host.Name) []*mesh.VirtualService {
	var out []*mesh.VirtualService
	for _, o := range serverHosts(s) {
		if !name.SubsetOf(o.name) {
			continue
		}
		for h := range name.Covers() {
			if met, ok := o.meet(h); !ok || met != name {
				continue
			}
			for _, vs := range t.view.VirtualServices(t.gateway, h) {
				if o.admits(vs) && !slices.Contains(out, vs) {
					out = append(out, vs)
				}
			}
		}
	}
	slices.SortFunc(out, t.view.CompareVirtualServices)
	return out
}

// meet is the narrower of a server's host and a host of a VirtualService, where
// one covers the other.
func (o serverHost) meet(h host.Name) (host.Name, bool) {
	switch {
	case h.SubsetOf(o.name):
		return h, true
	case o.name.SubsetOf(h):
		return o.name, true
	}
	return "", false
}

// admits says whether the host is for VirtualServices of a namespace.
func (o serverHost) admits(vs *mesh.VirtualService) bool {
	return o.namespace == "*" || o.namespace == vs.Config.Namespace
}

package virtualhost

import (
	"cmp"
	"slices"
	"strings"

	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/generate/route"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/routing"
)

// gatewayNames returns the hosts that may have come or gone: every name in which a
// server and a changed route of its gateway may overlap. For a Whole delta it includes
// the names of the servers themselves.
func gatewayNames(v *mesh.View, d mesh.Delta, yield func(string) bool) {
	for _, s := range route.HTTPServers(v) {
		each := func(h host.Name) bool {
			return yield(route.HostName(route.GatewayName(s), string(h), s.Port()))
		}
		for _, o := range s.Hosts {
			if d.Whole && !each(o.Name) {
				return
			}
		}
		for c := range d.Routes() {
			name, ok := strings.CutPrefix(c.Key, mesh.RouteKey(s.Gateway.Name(), ""))
			if !ok {
				continue
			}
			for _, o := range s.Hosts {
				if met, ok := o.Meet(host.Name(name)); ok && !each(met) {
					return
				}
			}
		}
	}
}

// gatewayHost makes the virtual host of a name on servers that share a port, nil if
// none of them has it. The routes of all VirtualServices that overlap with a server in
// this name follow one another; routes that match every request come last. (Istio:
// buildGatewayHTTPRouteConfig.)
func gatewayHost(v *mesh.View, servers []*routing.Server, name host.Name) *envoy.VirtualHostOptions {
	out := &envoy.VirtualHostOptions{Domains: []string{string(name)}}
	exists := false
	has := map[origin]bool{}
	for _, s := range servers {
		t := translator{view: v, gateway: s.Gateway.Name(), port: s.Port(), tls: s.Kind() == routing.HTTPS}
		named := slices.ContainsFunc(s.Hosts, func(o routing.ServerHost) bool { return o.Name == name })
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
	vs      *routing.VirtualService
}

func catchAllLast(a, b envoy.RouteOptions) int {
	rank := func(r envoy.RouteOptions) int {
		if r.Match.CatchAll() {
			return 1
		}
		return 0
	}
	return cmp.Compare(rank(a), rank(b))
}

func httpsRedirect(s *routing.Server) bool { return s.Spec.GetTls().GetHttpsRedirect() }

// meeting returns the VirtualServices that overlap with a server in a name, by
// precedence. If the server's host covers the name, those are the ones for the name. If
// the name is the server's host, they include those for names that cover it.
func (t translator) meeting(s *routing.Server, name host.Name) []*routing.VirtualService {
	var out []*routing.VirtualService
	for _, o := range s.Hosts {
		if !name.SubsetOf(o.Name) {
			continue
		}
		for h := range name.Covers() {
			if met, ok := o.Meet(h); !ok || met != name {
				continue
			}
			for _, vs := range t.view.VirtualServices(t.gateway, h) {
				if o.Admits(vs) && !slices.Contains(out, vs) {
					out = append(out, vs)
				}
			}
		}
	}
	slices.SortFunc(out, t.view.CompareVirtualServices)
	return out
}

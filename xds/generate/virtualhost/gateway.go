package virtualhost

import (
	"cmp"
	"iter"
	"slices"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/generate/route"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/routing"
)

// gatewayNames yields the hosts that may appear or disappear: every name in which a
// server and a changed route of its gateway may overlap. For a Whole delta it also yields
// the servers' own hosts.
func gatewayNames(v *mesh.View, d mesh.Delta, yield func(string) bool) {
	changed := map[string]*changedHosts{}
	for c := range d.Routes() {
		gateway, name := routing.SplitRouteKey(c.Key)
		if gateway == mesh.MeshGateway {
			continue
		}
		if changed[gateway] == nil {
			changed[gateway] = &changedHosts{exact: map[host.Name]bool{}}
		}
		changed[gateway].add(name)
	}
	if len(changed) == 0 && !d.Whole {
		return
	}
	for _, r := range route.GatewayRoutes(v) {
		for _, s := range r.Servers {
			of := changed[s.Gateway.Name()]
			for _, o := range s.Hosts {
				if d.Whole && !yield(route.HostName(r.Name, string(o.Name), r.Port())) {
					return
				}
				for met := range of.overlapping(o) {
					if !yield(route.HostName(r.Name, string(met), r.Port())) {
						return
					}
				}
			}
		}
	}
}

// changedHosts holds the hosts of a gateway that have changed routes.
type changedHosts struct {
	exact    map[host.Name]bool
	patterns []host.Name
	all      []host.Name
}

func (r *changedHosts) add(name host.Name) {
	r.all = append(r.all, name)
	if name.IsWildcard() {
		r.patterns = append(r.patterns, name)
	} else {
		r.exact[name] = true
	}
}

// overlapping yields the names in which a server's host overlaps with the routed hosts. A
// host that is no pattern overlaps only with itself and with patterns.
func (r *changedHosts) overlapping(o routing.ServerHost) iter.Seq[host.Name] {
	return func(yield func(host.Name) bool) {
		if r == nil {
			return
		}
		candidates := r.all
		if !o.Name.IsWildcard() {
			if candidates = r.patterns; r.exact[o.Name] && !yield(o.Name) {
				return
			}
		}
		for _, name := range candidates {
			if met, ok := o.Overlap(name); ok && !yield(met) {
				return
			}
		}
	}
}

// gatewayHost makes the virtual host of a name for servers that share a port, nil if none
// of them has it. It has the routes of all VirtualServices that overlap with a server in
// this name, one after the other. Routes that match every request come last. (Istio:
// buildGatewayHTTPRouteConfig.)
func gatewayHost(v *mesh.View, servers []*routing.Server, name host.Name) *envoy.VirtualHostOptions {
	out := &envoy.VirtualHostOptions{Domains: []string{string(name)}}
	exists := false
	has := map[origin]bool{}
	for _, s := range servers {
		t := translator{view: v, gateway: s.Gateway.Name(), port: s.Port(), tls: s.Kind() == routing.HTTPS, grpcWeb: s.Protocol() == discovery.GRPCWeb}
		named := slices.ContainsFunc(s.Hosts, func(o routing.ServerHost) bool { return o.Name == name })
		met := named && httpsRedirect(s)
		for _, vs := range t.overlapping(s, name) {
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

// origin identifies routes of a virtual host: a VirtualService on a gateway.
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

// overlapping returns the VirtualServices that overlap with a server in exactly this name, by
// precedence. If the server's host covers the name, these are the VirtualServices for the
// name. If the name is the server's host, those for wider names count, too.
func (t translator) overlapping(s *routing.Server, name host.Name) []*routing.VirtualService {
	var out []*routing.VirtualService
	for _, o := range s.Hosts {
		if !name.SubsetOf(o.Name) {
			continue
		}
		for h := range name.Covers() {
			if met, ok := o.Overlap(h); !ok || met != name {
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

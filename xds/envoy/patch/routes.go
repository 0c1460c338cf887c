package patch

import (
	"slices"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"
)

// RouteConfiguration applies the patches of ROUTE_CONFIGURATION, and those of VIRTUAL_HOST and
// HTTP_ROUTE to the virtual hosts in the message. It adds virtual hosts unless they are resources of
// their own (VHDS): AddedVirtualHosts returns those.
func RouteConfiguration(m *routev3.RouteConfiguration, at Place, patches []*Patch) (*routev3.RouteConfiguration, []Result) {
	facts := factsOfRoutes(m.GetName(), at)
	of := func(p *Patch) bool { return p.ofRoutes(at.Context) && p.matchesRoutes(facts) }
	if !slices.ContainsFunc(patches, func(p *Patch) bool { return of(p) && p.touchesRoutes(m, at) }) {
		return m, nil
	}
	return apply(m, patches, func(r *run, m *routev3.RouteConfiguration, patches []*Patch) *routev3.RouteConfiguration {
		(&routesEdit{run: r, at: at, patches: filtered(patches, of)}).routes(m)
		return m
	})
}

// VirtualHost applies the patches of VIRTUAL_HOST and HTTP_ROUTE to a virtual host that is a
// resource of its own: at.Routes names its route configuration. It returns nil if one removes the
// virtual host.
func VirtualHost(m *routev3.VirtualHost, at Place, patches []*Patch) (*routev3.VirtualHost, []Result) {
	facts := factsOfRoutes(at.Routes, at)
	of := func(p *Patch) bool { return p.ofRoutes(at.Context) && p.matchesRoutes(facts) }
	if !slices.ContainsFunc(patches, func(p *Patch) bool { return of(p) && p.touchesVirtualHost(m) }) {
		return m, nil
	}
	return apply(m, patches, func(r *run, m *routev3.VirtualHost, patches []*Patch) *routev3.VirtualHost {
		return (&routesEdit{run: r, at: at, patches: filtered(patches, of)}).virtualHost(m)
	})
}

// AddedVirtualHosts returns the virtual hosts that patches add to the route configuration at.Routes,
// whose virtual hosts are resources of their own. Of several with a name the first is added.
func AddedVirtualHosts(at Place, patches []*Patch) ([]*routev3.VirtualHost, []Result) {
	facts := factsOfRoutes(at.Routes, at)
	return added[*routev3.VirtualHost](patches, func(p *Patch) bool { return p.addsVirtualHost(at) && p.matchesRoutes(facts) })
}

func (p *Patch) addsVirtualHost(at Place) bool {
	return p.is(networking.EnvoyFilter_VIRTUAL_HOST, at.Context) && p.Operation == networking.EnvoyFilter_Patch_ADD
}

// filtered returns the patches of which something is true.
func filtered(patches []*Patch, is func(*Patch) bool) []*Patch {
	var out []*Patch
	for _, p := range patches {
		if is(p) {
			out = append(out, p)
		}
	}
	return out
}

// touchesRoutes says whether the patch changes something in a route configuration that it matches,
// and that no patch has changed yet.
func (p *Patch) touchesRoutes(m *routev3.RouteConfiguration, at Place) bool {
	switch {
	case p.ApplyTo == networking.EnvoyFilter_ROUTE_CONFIGURATION:
		return p.merges()
	case p.addsVirtualHost(at):
		return m.GetVhds() == nil
	}
	return slices.ContainsFunc(m.GetVirtualHosts(), p.touchesVirtualHost)
}

// touchesVirtualHost is touchesRoutes for a virtual host of routes that the patch matches.
func (p *Patch) touchesVirtualHost(m *routev3.VirtualHost) bool {
	if !p.matchesVirtualHost(m) {
		return false
	}
	switch p.ApplyTo {
	case networking.EnvoyFilter_VIRTUAL_HOST:
		return p.Operation != networking.EnvoyFilter_Patch_ADD
	case networking.EnvoyFilter_HTTP_ROUTE:
		return p.Operation == networking.EnvoyFilter_Patch_ADD || !p.namesRoute() || slices.ContainsFunc(m.GetRoutes(), p.matchesRoute)
	}
	return false
}

// routesEdit changes route configurations and virtual hosts. Its patches are of routes, and match
// the route configuration.
type routesEdit struct {
	*run
	at      Place
	patches []*Patch
}

func (e *routesEdit) routes(m *routev3.RouteConfiguration) {
	for _, p := range e.patches {
		if p.ApplyTo == networking.EnvoyFilter_ROUTE_CONFIGURATION && p.merges() {
			e.merge(m, p)
		}
	}
	var hosts []*routev3.VirtualHost
	for _, host := range m.GetVirtualHosts() {
		if host = e.virtualHost(host); host != nil {
			hosts = append(hosts, host)
		}
	}
	m.VirtualHosts = hosts
	if m.GetVhds() != nil {
		return
	}
	for _, p := range e.patches {
		if p.addsVirtualHost(e.at) {
			e.step(p, func() error {
				m.VirtualHosts = append(m.VirtualHosts, proto.CloneOf(p.value.(*routev3.VirtualHost)))
				return nil
			})
		}
	}
}

// virtualHost changes a virtual host and its routes. It returns nil to remove it.
func (e *routesEdit) virtualHost(m *routev3.VirtualHost) *routev3.VirtualHost {
	for _, p := range e.patches {
		switch {
		case p.ApplyTo != networking.EnvoyFilter_VIRTUAL_HOST || !p.matchesVirtualHost(m):
		case p.Operation == networking.EnvoyFilter_Patch_REMOVE:
			e.done(p)
			return nil
		case p.Operation == networking.EnvoyFilter_Patch_REPLACE:
			e.done(p)
			m = proto.CloneOf(p.value.(*routev3.VirtualHost))
		case p.merges():
			e.merge(m, p)
		}
	}
	e.httpRoutes(m)
	return m
}

func (e *routesEdit) httpRoutes(m *routev3.VirtualHost) {
	of := filtered(e.patches, func(p *Patch) bool { return p.ApplyTo == networking.EnvoyFilter_HTTP_ROUTE && p.matchesVirtualHost(m) })
	m.Routes = slices.DeleteFunc(m.GetRoutes(), func(route *routev3.Route) bool { return !e.httpRoute(route, of) })
	for _, p := range of {
		if at := p.placeAmong(m.GetRoutes()); at >= 0 {
			e.step(p, func() error {
				m.Routes = slices.Insert(m.Routes, at, proto.CloneOf(p.value.(*routev3.Route)))
				return nil
			})
		}
	}
}

// httpRoute changes a route. It returns false to remove it.
func (e *routesEdit) httpRoute(m *routev3.Route, patches []*Patch) bool {
	for _, p := range patches {
		switch {
		case !p.matchesRoute(m):
		case p.Operation == networking.EnvoyFilter_Patch_REMOVE:
			e.done(p)
			return false
		case p.merges():
			e.merge(m, p)
		}
	}
	return true
}

// placeAmong returns the index at which the patch inserts its route, -1 for none.
func (p *Patch) placeAmong(routes []*routev3.Route) int {
	found := -1
	if p.namesRoute() {
		found = slices.IndexFunc(routes, p.matchesRoute)
	}
	switch p.Operation {
	case networking.EnvoyFilter_Patch_ADD:
		return len(routes)
	case networking.EnvoyFilter_Patch_INSERT_FIRST:
		if found >= 0 || !p.namesRoute() {
			return 0
		}
	case networking.EnvoyFilter_Patch_INSERT_BEFORE:
		if !p.namesRoute() {
			return 0
		}
		return found
	case networking.EnvoyFilter_Patch_INSERT_AFTER:
		if !p.namesRoute() {
			return len(routes)
		}
		if found >= 0 {
			return found + 1
		}
	}
	return -1
}

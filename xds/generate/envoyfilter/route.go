package envoyfilter

import (
	"iter"
	"slices"
	"strconv"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/xds/envoy/patch"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/generate/route"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// placeOf returns the place of a route configuration.
func placeOf(v *mesh.View, name string) patch.Place {
	at := patch.Place{Kind: networking.EnvoyFilter_ROUTE_CONFIGURATION, Name: name, Context: contextOf(v)}
	if at.Context != networking.EnvoyFilter_GATEWAY {
		return at
	}
	routes := v.GatewayRoutes(name)
	if routes == nil {
		return at
	}
	var ports []string
	for _, s := range routes.Servers {
		if port := strconv.Itoa(s.Port()); !slices.Contains(ports, port) {
			ports = append(ports, port)
		}
	}
	at.Ports = strings.Join(ports, " ")
	return at
}

// within returns the place of a virtual host.
func within(routes patch.Place, name string) patch.Place {
	routes.Kind, routes.Routes, routes.Name = networking.EnvoyFilter_VIRTUAL_HOST, routes.Name, name
	return routes
}

// Routes patches route configurations without the virtual hosts that are resources of their own.
type Routes struct{}

var _ generate.Patch = Routes{}

// Affected implements generate.Patch. No patch adds a route configuration.
func (Routes) Affected(*mesh.View, mesh.Delta) iter.Seq[string] { return func(func(string) bool) {} }

// Apply implements generate.Patch.
func (Routes) Apply(v *mesh.View, name string, message proto.Message, needs []resource.Need) (proto.Message, []resource.Need, error) {
	if message == nil || !v.MayPatch(networking.EnvoyFilter_ROUTE_CONFIGURATION) && !v.MayPatch(networking.EnvoyFilter_VIRTUAL_HOST) {
		return message, needs, nil
	}
	before, at := message.(*routev3.RouteConfiguration), placeOf(v, name)
	patches := v.Patches(at.Kind, at)
	for _, host := range before.GetVirtualHosts() {
		for _, p := range v.Patches(networking.EnvoyFilter_VIRTUAL_HOST, within(at, host.GetName())) {
			if !p.Adds() && !slices.Contains(patches, p) {
				patches = append(patches, p)
			}
		}
	}
	if len(patches) == 0 {
		return message, needs, nil
	}
	after, results := patch.RouteConfiguration(before, at, patches)
	v.NotePatches(results)
	out, err := patched(before, after, needs)
	return out.message, out.needs, err
}

// VirtualHosts patches the virtual hosts that are resources of their own.
type VirtualHosts struct{}

var _ generate.Patch = VirtualHosts{}

// Affected implements generate.Patch. A patch adds a virtual host to each route configuration that
// it matches, when either appears.
func (VirtualHosts) Affected(v *mesh.View, d mesh.Delta) iter.Seq[string] {
	return func(yield func(string) bool) {
		if !v.MayPatch(networking.EnvoyFilter_VIRTUAL_HOST) {
			return
		}
		whole := d.Everything()
		if changed := v.AddedPatches(networking.EnvoyFilter_VIRTUAL_HOST, d); len(changed) > 0 && !addedHosts(v, whole, changed, yield) {
			return
		}
		if all := v.AddedPatches(networking.EnvoyFilter_VIRTUAL_HOST, whole); len(all) > 0 {
			addedHosts(v, d, all, yield)
		}
	}
}

// addedHosts calls yield with the names of the virtual hosts that patches add to the route
// configurations which a delta concerns. It returns false if yield did.
func addedHosts(v *mesh.View, d mesh.Delta, patches []*patch.Patch, yield func(string) bool) bool {
	for config := range (route.Generator{}).Affected(v, d) {
		at := within(placeOf(v, config), "")
		for _, p := range patches { // one by one: those before and after a change have one name
			made, _ := patch.AddedVirtualHosts(at, []*patch.Patch{p})
			for _, host := range made {
				if !yield(config + "/" + host.GetName()) {
					return false
				}
			}
		}
	}
	return true
}

// Apply implements generate.Patch.
func (VirtualHosts) Apply(v *mesh.View, name string, message proto.Message, needs []resource.Need) (proto.Message, []resource.Need, error) {
	if !v.MayPatch(networking.EnvoyFilter_VIRTUAL_HOST) {
		return message, needs, nil
	}
	config, short, ok := route.SplitHostName(name)
	if !ok {
		return message, needs, nil
	}
	at := within(placeOf(v, config), short)
	patches := v.Patches(at.Kind, at)
	switch {
	case len(patches) == 0:
		return message, needs, nil
	case message == nil:
		out, err := addHost(v, at, name, patches)
		return out.message, out.needs, err
	}
	refuse(v, short, patches)
	before := proto.CloneOf(message.(*routev3.VirtualHost))
	before.Name = short // as matches know it
	after, results := patch.VirtualHost(before, at, patches)
	v.NotePatches(results)
	if after == before {
		return message, needs, nil
	}
	if after != nil {
		after.Name = name
	}
	out, err := patched(before, after, needs)
	return out.message, out.needs, err
}

// addHost makes the virtual host that patches add to a route configuration, nothing if there is no
// such configuration.
func addHost(v *mesh.View, at patch.Place, name string, patches []*patch.Patch) (built, error) {
	if !slices.ContainsFunc(patches, (*patch.Patch).Adds) {
		return built{}, nil
	}
	routes, _, err := route.Generator{}.Build(v, at.Routes)
	if routes == nil || err != nil {
		return built{}, err
	}
	if slices.ContainsFunc(routes.(*routev3.RouteConfiguration).GetVirtualHosts(), func(h *routev3.VirtualHost) bool { return h.GetName() == at.Name }) {
		refuse(v, at.Name, patches)
		return built{}, nil
	}
	made, results := patch.AddedVirtualHosts(at, patches)
	v.NotePatches(results)
	out, err := first(made)
	if len(made) > 0 {
		made[0].Name = name
	}
	return out, err
}

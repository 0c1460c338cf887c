package verdict

import (
	"fmt"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/routing"
)

// gatewayRoutes judges which routes of a VirtualService none of its gateways has, since no
// server is of their kind, or another route is before them.
func (j *judge) gatewayRoutes(vs *routing.VirtualService) {
	var all []bound
	for i, name := range vs.Gateways {
		if name == mesh.MeshGateway {
			continue
		}
		g, known := j.servedBy(vs, i, name)
		if !known {
			return // another verdict tells
		}
		all = append(all, g)
	}
	if len(all) == 0 {
		return
	}
	onSidecars := slices.Contains(vs.Gateways, mesh.MeshGateway)
	useless := !onSidecars
	if len(vs.Spec.GetHttp()) > 0 && !onSidecars {
		if slices.ContainsFunc(all, func(g bound) bool { return g.http }) {
			useless = false
		} else {
			j.add(unservedRoutes("spec.http", "is for HTTP, and no HTTP server of %s has its hosts", all))
		}
	}
	for i, r := range vs.Spec.GetTcp() {
		j.ignoredOnGateways(vs, r, at("spec.tcp", i))
		switch {
		case slices.ContainsFunc(all, func(g bound) bool { return g.tcp[i] }):
			useless = false
			j.tcpBefore(vs, i, all)
		case onSidecars && forSidecars(r):
			useless = false
		case routing.ForGateways(vs, r.GetMatch()):
			j.add(unservedRoutes(at("spec.tcp", i), "is for TCP, and no TCP server of %s has its hosts and ports", all))
		}
	}
	for _, g := range all {
		if !useless && !g.http && !slices.Contains(g.tcp, true) && len(vs.Spec.GetTls()) == 0 {
			j.add(unservedRoutes(at("spec.gateways", g.index), "is a Gateway for none of the routes, and no server of %s has their protocol, hosts and ports", []bound{g}))
		}
	}
}

// bound is what of a VirtualService a Gateway serves.
type bound struct {
	key     config.Key
	index   int // in the gateways of the VirtualService
	servers []*routing.Server
	http    bool   // the http routes
	tcp     []bool // each tcp route
}

// servedBy finds what of a VirtualService one of its gateways serves. It is false where
// that is not known: there is no such Gateway, it has no server for the hosts, or one of a
// protocol that is not served yet.
func (j *judge) servedBy(vs *routing.VirtualService, index int, name string) (bound, bool) {
	namespace, short, _ := strings.Cut(name, "/")
	g := bound{key: config.Key{Kind: schema.Gateway, Namespace: namespace, Name: short}, index: index}
	if j.object(g.key) == nil {
		return g, false
	}
	g.tcp = make([]bool, len(vs.Spec.GetTcp()))
	known := false
	for _, s := range j.mesh().Gateway(g.key.Path()).Servers {
		if !slices.ContainsFunc(vs.Hosts, func(h host.Name) bool { return s.Serves(vs, h) }) {
			continue
		}
		if known = true; !s.Kind().RoutesHTTP() && !s.PassesBytes() {
			return g, false
		}
		g.servers = append(g.servers, s)
		g.http = g.http || s.Kind().RoutesHTTP() && len(vs.Spec.GetHttp()) > 0
		for i, r := range vs.Spec.GetTcp() {
			g.tcp[i] = g.tcp[i] || s.Takes(vs, r)
		}
	}
	return g, known
}

// unservedRoutes is that no server of some Gateways is for routes; reason has a place for
// their names.
func unservedRoutes(field, reason string, of []bound) Verdict {
	var names []string
	for _, g := range of {
		names = append(names, g.key.String())
	}
	return Verdict{
		Code: RoutesUnserved, Field: field, Other: of[0].key,
		Message: fmt.Sprintf(reason, strings.Join(names, ", ")) + ": it has no effect there",
		Remedy:  "add a server of the protocol, or mend the routes: http is for servers of HTTP, and tcp for those of TCP",
	}
}

// forSidecars says whether a match of a tcp route is for sidecars.
func forSidecars(r *networking.TCPRoute) bool {
	return len(r.GetMatch()) == 0 || slices.ContainsFunc(r.GetMatch(), func(m *networking.L4MatchAttributes) bool {
		return len(m.GetGateways()) == 0 || slices.Contains(m.GetGateways(), mesh.MeshGateway)
	})
}

// tcpBefore judges whether a tcp route has the connections of one of the servers that it
// is for, or another route has those of all.
func (j *judge) tcpBefore(vs *routing.VirtualService, i int, all []bound) {
	var before *routing.VirtualService
	route := 0
	for _, g := range all {
		for _, s := range g.servers {
			if !s.Takes(vs, vs.Spec.GetTcp()[i]) {
				continue
			}
			first, n := j.view(g.key.Namespace).GatewayTCPRoute(s)
			if first == nil || first == vs && n == i {
				return
			}
			before, route = first, n
		}
	}
	field := at("spec.tcp", route)
	v := Verdict{
		Code: StreamShadowed, Field: at("spec.tcp", i),
		Message: fmt.Sprintf("%s takes all connections of the servers that it is for: gateways use one tcp route for each", field),
		Remedy:  "tell the routes apart by ports, or put all destinations into one",
	}
	switch {
	case before != vs:
		v.Other = before.Config.Key()
		v.Message = fmt.Sprintf("%s of %s takes all connections of the servers that it is for: gateways use one tcp route for each", field, v.Other)
	case len(vs.Spec.GetTcp()[route].GetMatch()) == 0:
		return // its schema tells
	}
	j.add(v)
}

// ignoredOnGateways judges the conditions of a tcp route that do not count on gateways.
func (j *judge) ignoredOnGateways(vs *routing.VirtualService, r *networking.TCPRoute, path string) {
	for i, m := range r.GetMatch() {
		if !routing.ForGateways(vs, []*networking.L4MatchAttributes{m}) {
			continue
		}
		for _, field := range SetFields(m, at(path+".match", i), "destinationSubnets", "sourceLabels", "sourceNamespace") {
			j.add(Verdict{
				Code: Unexpected, Field: field,
				Message: "does not count on gateways: the route takes every connection to the ports of its servers",
				Remedy:  "leave it out, or name mesh alone in the gateways of the match",
			})
		}
	}
}

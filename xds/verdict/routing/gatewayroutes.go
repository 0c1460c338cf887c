package routing

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/routing"
	"github.com/portolan-mesh/portolan/xds/verdict"
)

// gatewayRoutes warns of routes that none of a VirtualService's gateways has, because no server
// is of their kind or an earlier route takes their traffic.
func (j *judge) gatewayRoutes(vs *routing.VirtualService) {
	var all []bound
	for i, name := range vs.Gateways {
		if name == mesh.MeshGateway {
			continue
		}
		g, known := j.servedBy(vs, i, name)
		if !known {
			return // another verdict reports it
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
			j.Add(unservedRoutes("spec.http", "is for HTTP, and no HTTP server of %s has its hosts", all))
		}
	}
	for i, r := range vs.Spec.GetTcp() {
		ignoredOnGateways(j, vs, r.GetMatch(), verdict.At("spec.tcp", i))
		switch {
		case slices.ContainsFunc(all, func(g bound) bool { return g.tcp[i] }):
			useless = false
			j.tcpBefore(vs, i, all)
		case onSidecars && forSidecars(r.GetMatch()):
			useless = false
		case routing.ForGateways(vs, r.GetMatch()):
			j.Add(unservedRoutes(verdict.At("spec.tcp", i), "is for TCP, and no TCP server of %s has its hosts and ports", all))
		}
	}
	for i, r := range vs.Spec.GetTls() {
		ignoredOnGateways(j, vs, r.GetMatch(), verdict.At("spec.tls", i))
		switch {
		case slices.ContainsFunc(all, func(g bound) bool { return g.tls[i] }):
			useless = false
			j.namesOnGateways(vs, i, all)
		case onSidecars && forSidecars(r.GetMatch()):
			useless = false
		case routing.ForGateways(vs, r.GetMatch()):
			j.Add(unservedRoutes(verdict.At("spec.tls", i), "is for TLS that is passed on, and no server of %s with tls.mode PASSTHROUGH has its names and ports", all))
		}
	}
	for _, g := range all {
		if !useless && !g.http && !slices.Contains(g.tcp, true) && !slices.Contains(g.tls, true) {
			j.Add(unservedRoutes(verdict.At("spec.gateways", g.index), "is a Gateway for none of the routes, and no server of %s has their protocol, hosts and ports", []bound{g}))
		}
	}
}

// bound has the parts of a VirtualService that a Gateway serves.
type bound struct {
	key     config.Key
	index   int // index in the gateways of the VirtualService
	servers []*routing.Server
	http    bool   // the http routes
	tcp     []bool // each tcp route
	tls     []bool // each tls route
}

// servedBy returns which parts of a VirtualService one of its gateways serves. It returns false
// if that is unknown: the Gateway is missing, has no server for the hosts, or has one of an
// unsupported protocol.
func (j *judge) servedBy(vs *routing.VirtualService, index int, name string) (bound, bool) {
	g := bound{key: gatewayKey(name), index: index}
	if j.Object(g.key) == nil {
		return g, false
	}
	g.tcp, g.tls = make([]bool, len(vs.Spec.GetTcp())), make([]bool, len(vs.Spec.GetTls()))
	known := false
	for _, s := range j.Mesh().Gateway(g.key.Path()).Servers {
		if !slices.ContainsFunc(vs.Hosts, func(h host.Name) bool { return s.Serves(vs, h) }) {
			continue
		}
		if known = true; s.Kind() == routing.NotServed {
			return g, false
		}
		g.servers = append(g.servers, s)
		g.http = g.http || s.Kind().RoutesHTTP() && len(vs.Spec.GetHttp()) > 0
		for i, r := range vs.Spec.GetTcp() {
			g.tcp[i] = g.tcp[i] || s.UsesTCPRoute(vs, r)
		}
		for m := range s.NameMatches(vs) {
			g.tls[m.Route] = true
		}
	}
	return g, known
}

// unservedRoutes returns the verdict that no server of some Gateways is for the routes at
// field. reason is a format with one verb, for the names of the Gateways.
func unservedRoutes(field, reason string, of []bound) verdict.Verdict {
	var names []string
	for _, g := range of {
		names = append(names, g.key.String())
	}
	return verdict.Verdict{
		Code: verdict.RoutesUnserved, Field: field, Other: of[0].key,
		Message: fmt.Sprintf(reason, strings.Join(names, ", ")) + ": it has no effect there",
		Remedy:  "add a server of the protocol, or mend the routes: http is for servers of HTTP, tcp for those of TCP, and tls for those with tls.mode PASSTHROUGH",
	}
}

// forSidecars reports whether one of the matches of a tcp or tls route is for sidecars.
func forSidecars[M routing.StreamMatch](matches []M) bool {
	return len(matches) == 0 || slices.ContainsFunc(matches, func(m M) bool {
		return len(m.GetGateways()) == 0 || slices.Contains(m.GetGateways(), mesh.MeshGateway)
	})
}

// tcpBefore warns of a tcp route if other routes take the connections of all its servers.
func (j *judge) tcpBefore(vs *routing.VirtualService, i int, all []bound) {
	var before *routing.VirtualService
	route := 0
	for _, g := range all {
		for _, s := range g.servers {
			if !s.UsesTCPRoute(vs, vs.Spec.GetTcp()[i]) {
				continue
			}
			first, n := j.View(g.key.Namespace).GatewayTCPRoute(s)
			if first == nil || first == vs && n == i {
				return
			}
			before, route = first, n
		}
	}
	field := verdict.At("spec.tcp", route)
	v := verdict.Verdict{
		Code: verdict.StreamShadowed, Field: verdict.At("spec.tcp", i),
		Message: fmt.Sprintf("%s takes all connections of the servers that it is for: gateways use one tcp route for each", field),
		Remedy:  "tell the routes apart by ports, or put all destinations into one",
	}
	switch {
	case before != vs:
		v.Other = before.Key()
		v.Message = fmt.Sprintf("%s of %s takes all connections of the servers that it is for: gateways use one tcp route for each", field, v.Other)
	case len(vs.Spec.GetTcp()[route].GetMatch()) == 0:
		return // its schema reports it
	}
	j.Add(v)
}

// ignoredOnGateways warns of conditions of a tcp or tls route that gateways ignore.
func ignoredOnGateways[M interface {
	routing.StreamMatch
	proto.Message
}](j *judge, vs *routing.VirtualService, matches []M, path string) {
	for i, m := range matches {
		if !routing.ForGateways(vs, []M{m}) {
			continue
		}
		for _, field := range verdict.SetFields(m, verdict.At(path+".match", i), "destinationSubnets", "sourceLabels", "sourceNamespace") {
			j.Add(verdict.Verdict{
				Code: verdict.Unexpected, Field: field,
				Message: "does not count on gateways: the route takes connections of every client and to every address of its servers",
				Remedy:  "leave it out, or name mesh alone in the gateways of the match",
			})
		}
	}
}

// namesOnGateways warns of names of a tls route that none of its servers has, or that another
// route or another server of the port takes first.
func (j *judge) namesOnGateways(vs *routing.VirtualService, i int, all []bound) {
	for k, m := range vs.Spec.GetTls()[i].GetMatch() {
		if !routing.ForGateways(vs, []*networking.TLSMatchAttributes{m}) {
			continue
		}
		for n, name := range m.GetSniHosts() {
			field := verdict.At(verdict.At(verdict.At("spec.tls", i)+".match", k)+".sniHosts", n)
			before, some, free := verdict.Verdict{}, false, false
			for _, g := range all {
				for _, s := range g.servers {
					common := s.Common(vs, name)
					if !s.PassesTLS() || !s.IsFor(vs, m) || len(common) == 0 {
						continue
					}
					some = true
					if of := j.nameBefore(vs, i, k, s, common, g); of.Message == "" {
						free = true
					} else {
						before = of
					}
				}
			}
			switch {
			case free:
			case some:
				before.Code, before.Field = verdict.SNITaken, field
				before.Message = fmt.Sprintf("%q %s: this route is not used for the name", name, before.Message)
				j.Add(before)
			default:
				j.Add(verdict.Verdict{
					Code: verdict.NameOutside, Field: field, Other: all[0].key,
					Message: fmt.Sprintf("%q is a host of no server that passes TLS and that the match is for: gateways close connections that ask for it", name),
					Remedy:  "add it to the hosts of such a server, or mend the port and the gateways of the match",
				})
			}
		}
	}
}

// nameBefore looks for what takes the names in common of a match of a tls route before it, on
// one server. It returns the end of a message, and a remedy; no message if a name is free.
func (j *judge) nameBefore(vs *routing.VirtualService, i, k int, s *routing.Server, common []string, g bound) (v verdict.Verdict) {
	looked := 0
	has := map[string]verdict.Verdict{}
	for _, t := range s.Gateway.Servers {
		if t == s || t.Port() != s.Port() || t.Spec.GetBind() != s.Spec.GetBind() || !t.Kind().IsTLS() {
			continue
		}
		for _, name := range t.Names {
			has[name] = verdict.Verdict{
				Other: g.key, Message: fmt.Sprintf("is a host of another server on port %d of %s", s.Port(), g.key),
				Remedy: "take the host out of that server, or leave the name out here",
			}
		}
	}
	for o := range j.View(g.key.Namespace).GatewayNames(s) {
		if looked++; looked > verdict.MaxLooked || o.Of == vs && o.Route == i && o.Match == k {
			break
		}
		for _, name := range o.Names {
			if _, taken := has[name]; taken {
				continue
			}
			field, of := verdict.At(verdict.At("spec.tls", o.Route)+".match", o.Match), verdict.Verdict{Remedy: "name it once for a server"}
			if of.Message = fmt.Sprintf("has a route already, %s, which comes first", field); o.Of != vs {
				of.Other = o.Of.Key()
				of.Message = fmt.Sprintf("has a route already, %s of %s, which comes first", field, of.Other)
			}
			has[name] = of
		}
	}
	for _, name := range common {
		of, taken := has[name]
		if !taken {
			return verdict.Verdict{}
		}
		v = of
	}
	return v
}

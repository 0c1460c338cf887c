package virtualhost_test

import (
	"testing"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/simulate"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// delegate is a VirtualService without hosts.
func delegate(name, spec string) string { return xdstest.Object("VirtualService", name, "{"+spec+"}") }

// A VirtualService has its delegates' routes in the place of the routes that delegate to
// them, on gateways and sidecars.
func TestDelegates(t *testing.T) {
	t.Parallel()
	const (
		gateway = "{selector: {istio: gateway}, servers: [{port: {number: 8000, name: http, protocol: HTTP}, hosts: ['*']}]}"
		toWeb80 = "{route: [{destination: {host: web.example.com}}]}"
	)
	front := func(routes string) string {
		return xdstest.Object("VirtualService", "front", "{hosts: [web.example.com], gateways: [mesh, gw], http: ["+routes+"]}")
	}
	team := func(name, http string) string { return delegate("team/"+name, "http: ["+http+"]") }
	at := func(path string) simulate.Request { return simulate.Request{Host: "web.example.com", Path: path} }
	mesh := []string{web, reviews, xdstest.Object("Gateway", "gw", gateway),
		front("{match: [{uri: {prefix: /api}}], delegate: {name: api, namespace: team}, rewrite: {uri: /v1}}, " +
			"{match: [{uri: {prefix: /none}}], delegate: {name: none}}, {match: [{uri: {prefix: /own}}], delegate: {name: closed, namespace: team}}, " + toWeb80),
		team("api", "{match: [{uri: {prefix: /api/new}}], route: [{destination: {host: reviews.example.com}}], rewrite: {uri: /new}}, "+
			"{match: [{uri: {prefix: /other}}], directResponse: {status: 418}}, "+
			"{match: [{headers: {x-test: {exact: 'yes'}}}], route: [{destination: {host: reviews.example.com}}]}, {directResponse: {status: 404}}"),
		delegate("team/closed", "exportTo: [.], http: [{directResponse: {status: 418}}]")}
	tests := []behaviour{
		{name: "the delegate's route", request: at("/api/new/x"), want: toReviews, path: "/new/x"},
		{name: "its conditions beside those of the root", request: simulate.Request{Host: "web.example.com", Path: "/api/y", Headers: map[string]string{"x-test": "yes"}}, want: toReviews, path: "/v1/y"},
		{name: "the delegate's last route", request: at("/api/y"), want: "404"},
		{name: "outside what the root delegates", request: simulate.Request{Host: "web.example.com", Path: "/y", Headers: map[string]string{"x-test": "yes"}}, want: toWeb},
		{name: "a route that conflicts is left out", request: at("/other"), want: toWeb},
		{name: "so is one to a delegate that is not there", request: at("/none"), want: toWeb},
		{name: "and one to a delegate that is not exported", request: at("/own"), want: toWeb},
	}
	for _, router := range []bool{false, true} {
		var all []behaviour
		for _, b := range tests {
			b.mesh = mesh
			if router {
				b.name += ", at a gateway"
				b.node = xdstest.Node{Type: discovery.Router, Labels: map[string]string{"istio": "gateway"}}
				b.request.Port = 8000
			}
			all = append(all, b)
		}
		run(t, all)
	}
	run(t, []behaviour{
		{name: "gateways of a delegate's match", request: at("/"), want: toReviews, mesh: []string{web, reviews, front("{delegate: {name: d, namespace: team}}"),
			team("d", "{match: [{gateways: [default/gw]}], route: [{destination: {host: web.example.com}}]}, {match: [{gateways: [mesh]}], route: [{destination: {host: reviews.example.com}}]}")}},
		{name: "no route of any delegate", request: at("/"), want: toWeb, mesh: []string{web, front("{delegate: {name: d}}")}},
		{name: "a delegate is bound to no gateway", request: at("/"), want: toWeb, mesh: []string{web, reviews,
			delegate("d", "http: [{route: [{destination: {host: reviews.example.com}}]}]")}},
		{name: "a delegate takes over what the root says", request: at("/"), want: "abort 100% with 503", mesh: []string{web,
			front("{delegate: {name: d}, fault: {abort: {httpStatus: 503, percentage: {value: 100}}}}"), delegate("d", "http: ["+toWeb80+"]")}},
	})
}

// The routes follow every change of a root or a delegate.
func TestDelegatesComeAndGo(t *testing.T) {
	t.Parallel()
	root := xdstest.Object("VirtualService", "root", "{hosts: [web.example.com], http: [{delegate: {name: d}}]}")
	answering := func(spec string) string { return delegate("d", spec+"http: [{directResponse: {status: 418}}]") }
	w := xdstest.NewWorld(t, web, root)
	check := func(what, want string) {
		t.Helper()
		if got := w.Simulate(xdstest.Node{}).Run(simulate.Request{Host: "web.example.com"}).String(); got != want {
			t.Errorf("%s: got %s, want %s", what, got, want)
		}
	}
	check("no delegate", toWeb)
	w.Apply(answering(""))
	check("it comes", "418")
	w.Apply(delegate("d", "http: [{directResponse: {status: 404}}]"))
	check("it changes", "404")
	w.Apply(answering("exportTo: ['~'], "))
	check("it hides", toWeb)
	w.Apply(answering("hosts: [other.example.com], "))
	check("it is no delegate any more", toWeb)
	w.Apply(answering(""))
	w.Delete("virtualservice/default/root")
	check("the root goes", toWeb)
	w.Apply(root)
	check("and comes", "418")
	w.Delete("virtualservice/default/d")
	check("the delegate goes", toWeb)
}

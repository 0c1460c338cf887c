package virtualhost_test

import (
	"testing"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/simulate"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

func TestGatewayRoutes(t *testing.T) {
	t.Parallel()
	gateway := func(name, servers string) string { return xdstest.Object("Gateway", name, "{servers: ["+servers+"]}") }
	server := func(hosts string) string {
		return "{port: {number: 80, name: http, protocol: HTTP}, hosts: [" + hosts + "]}"
	}
	onto := func(name, gateways, hosts, http string) string {
		return xdstest.Object("VirtualService", name, "{hosts: ["+hosts+"], gateways: ["+gateways+"], http: ["+http+"]}")
	}
	const (
		webRoute     = "{route: [{destination: {host: web.example.com}}]}"
		reviewsRoute = "{route: [{destination: {host: reviews.example.com}}]}"
		underA       = "{match: [{uri: {prefix: /a}}], route: [{destination: {host: reviews.example.com}}]}"
	)
	all := gateway("gw", server("'*'"))
	request := simulate.Request{Host: "web.example.com"}
	tests := []behaviour{
		{name: "a VirtualService of the gateway", mesh: []string{web, all, onto("a", "gw", "web.example.com", webRoute)}, request: request, want: toWeb},
		{name: "of a gateway by its namespace", mesh: []string{web, all, onto("shop/a", "default/gw", "web.example.com", webRoute)}, request: request, want: toWeb},
		{name: "of another gateway", mesh: []string{web, all, onto("a", "other", "web.example.com", webRoute)}, request: request, want: "no route"},
		{name: "of sidecars only", mesh: []string{web, all, onto("a", "mesh", "web.example.com", webRoute)}, request: request, want: "no route"},
		{name: "nothing bound answers 404", mesh: []string{web, all}, request: request, want: "no route"},
		{name: "a host of no VirtualService", mesh: []string{web, all, onto("a", "gw", "web.example.com", webRoute)},
			request: simulate.Request{Host: "x.example.com"}, want: "no virtual host"},
		{name: "a host that the server does not have", request: request, want: "no route",
			mesh: []string{web, gateway("gw", server("'*.example.org'")), onto("a", "gw", "web.example.com", webRoute)}},
		{name: "the VirtualService's host is the narrower", request: simulate.Request{Host: "x.example.com"}, want: "no virtual host",
			mesh: []string{web, gateway("gw", server("'*.example.com'")), onto("a", "gw", "web.example.com", webRoute)}},
		{name: "the server's host is the narrower", request: simulate.Request{Host: "x.example.com"}, want: "no virtual host",
			mesh: []string{web, gateway("gw", server("web.example.com")), onto("a", "gw", "'*.example.com'", webRoute)}},
		{name: "the server's host is routed", request: request, want: toWeb,
			mesh: []string{web, gateway("gw", server("WEB.example.com")), onto("a", "gw", "'*.example.com'", webRoute)}},
		{name: "a server's namespace admits", request: request, want: toWeb,
			mesh: []string{web, gateway("gw", server("shop/*")), onto("shop/a", "default/gw", "web.example.com", webRoute)}},
		{name: "a server's namespace excludes", request: request, want: "no route",
			mesh: []string{web, gateway("gw", server("shop/*")), onto("a", "gw", "web.example.com", webRoute)}},
		{name: "the gateway's own namespace", request: request, want: toWeb,
			mesh: []string{web, gateway("gw", server("./*")), onto("a", "gw", "web.example.com", webRoute)}},
		{name: "routes of several VirtualServices follow one another, the oldest first", want: toReviews, request: simulate.Request{Host: "web.example.com", Path: "/a/b"},
			mesh: []string{web, reviews, all, onto("b", "gw", "web.example.com", underA), onto("a", "gw", "web.example.com", "{match: [{uri: {prefix: /a/b}}], route: [{destination: {host: web.example.com}}]}")}},
		{name: "a route for everything goes to the end", want: toReviews, request: simulate.Request{Host: "web.example.com", Path: "/a"},
			mesh: []string{web, reviews, all, onto("a", "gw", "web.example.com", webRoute), onto("b", "gw", "web.example.com", underA)}},
		{name: "the oldest route for everything wins", want: toReviews, request: request,
			mesh: []string{web, reviews, all, onto("b", "gw", "web.example.com", reviewsRoute), onto("a", "gw", "web.example.com", webRoute)}},
		{name: "the most specific host", want: toReviews, request: request,
			mesh: []string{web, reviews, all, onto("a", "gw", "'*'", webRoute), onto("b", "gw", "web.example.com", reviewsRoute)}},
		{name: "match by gateway", want: toReviews, request: request,
			mesh: []string{web, reviews, all, onto("a", "gw, mesh", "web.example.com", "{match: [{gateways: [mesh]}], route: [{destination: {host: web.example.com}}]}, {match: [{gateways: [gw]}], route: [{destination: {host: reviews.example.com}}]}")}},
		{name: "redirect to https", request: request, want: "301 to https://web.example.com/",
			mesh: []string{web, gateway("gw", "{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*'], tls: {httpsRedirect: true}}"), onto("a", "gw", "web.example.com", webRoute)}},
		{name: "redirect to https without a VirtualService", request: request, want: "301 to https://web.example.com/",
			mesh: []string{web, gateway("gw", "{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*'], tls: {httpsRedirect: true}}")}},
		{name: "a destination without a port: the server's", request: simulate.Request{Host: "two.example.com", Port: 8080}, want: "outbound|8080||two.example.com",
			mesh: []string{
				xdstest.Object("ServiceEntry", "two", "{hosts: [two.example.com], resolution: STATIC, ports: [{number: 8080, name: http, protocol: HTTP}, {number: 9090, name: other, protocol: HTTP}]}"),
				gateway("gw", "{port: {number: 8080, name: http, protocol: HTTP}, hosts: ['*']}"),
				onto("a", "gw", "two.example.com", "{route: [{destination: {host: two.example.com}}]}"),
			}},
	}
	for i := range tests {
		tests[i].node.Type = discovery.Router
	}
	run(t, tests)
}

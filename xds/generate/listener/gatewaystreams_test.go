package listener_test

import (
	"testing"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/simulate"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestGatewayTCP: which tcp route gets the connections to a port of a gateway.
func TestGatewayTCP(t *testing.T) {
	t.Parallel()
	const a, b, closed = "outbound|5432||a.example.com", "outbound|5432||b.example.com", "no listener"
	gateway := func(name, servers string) string {
		return xdstest.Object("Gateway", name, "{selector: {app: edge}, servers: ["+servers+"]}")
	}
	const server, local = "{port: {number: 9000, name: p, protocol: TCP}, hosts: ['*']}", "{port: {number: 9000, name: l, protocol: MONGO}, bind: 10.0.0.9, hosts: ['default/*.example.com']}"
	const http, tls = "{port: {number: 9000, name: h, protocol: HTTP}, hosts: ['*']}", "{port: {number: 9000, name: t, protocol: TLS}, tls: {mode: PASSTHROUGH}, hosts: ['*']}"
	via := func(name, host, tcp string) string {
		return routes(name, "hosts: ["+host+"], gateways: [g, shop/g, mesh], tcp: ["+tcp+"]")
	}
	tests := []struct {
		name    string
		mesh    []string
		address string
		want    string
	}{
		{name: "a route without a match", mesh: []string{gateway("g", server), via("v", "a.example.com", "{route: ["+to("a")+"]}")}, want: a},
		{name: "no route", mesh: []string{gateway("g", server)}, want: closed},
		{name: "the first that matches", mesh: []string{gateway("g", server), via("v", "a.example.com", "{match: [{port: 1}, {gateways: [mesh]}], route: ["+to("a")+"]}, {match: [{port: 9000, gateways: [g]}], route: ["+to("b")+"]}, {route: ["+to("a")+"]}")}, want: b},
		{name: "of another gateway", mesh: []string{gateway("g", server), via("v", "a.example.com", "{match: [{gateways: [shop/g]}], route: ["+to("a")+"]}")}, want: closed},
		{name: "of an unknown client", mesh: []string{gateway("g", server), via("v", "a.example.com", "{match: [{sourceLabels: {app: x}, sourceNamespace: shop, destinationSubnets: [10.0.0.0/8]}], route: ["+to("a")+"]}")}, want: a},
		{name: "weights", mesh: []string{gateway("g", server), via("v", "a.example.com", "{route: [{destination: {host: a.example.com}, weight: 3}, {destination: {host: b.example.com}, weight: 7}]}")}, want: a + "=3 " + b + "=7"},
		{name: "the oldest of two", mesh: []string{gateway("g", server), via("z", "a.example.com", "{route: ["+to("a")+"]}"), via("v", "b.example.com", "{match: [{port: 9000}], route: ["+to("b")+"]}")}, want: a},
		{name: "of no host of the server", mesh: []string{gateway("g", local), via("v", "a.example.org", "{route: ["+to("a")+"]}")}, address: "10.0.0.9", want: closed},
		{name: "of a pattern over the host of the server", mesh: []string{gateway("g", local), via("v", "'*.com'", "{route: ["+to("a")+"]}")}, address: "10.0.0.9", want: a},
		{name: "of another namespace than the server's", mesh: []string{gateway("g", local), xdstest.Object("VirtualService", "shop/v", "{hosts: [a.example.com], gateways: [default/g], tcp: [{route: ["+to("a")+"]}]}")}, address: "10.0.0.9", want: closed},
		{name: "not exported to the gateway", mesh: []string{gateway("g", server), xdstest.Object("VirtualService", "shop/v", "{hosts: [a.example.com], gateways: [default/g], exportTo: [.], tcp: [{route: ["+to("a")+"]}]}")}, want: closed},
		{name: "two addresses with one port", mesh: []string{gateway("g", server+", "+local), via("v", "a.example.com", "{route: ["+to("a")+"]}")}, address: "10.0.0.9", want: a},
		{name: "a port that HTTP has", mesh: []string{gateway("a", http), gateway("g", server), via("v", "a.example.com", "{route: ["+to("a")+"]}")}, want: "no route"},
		{name: "a port that HTTP would have later", mesh: []string{gateway("g", server+", "+http), via("v", "a.example.com", "{route: ["+to("a")+"]}")}, want: a},
		{name: "a port that an older server has without a route", mesh: []string{gateway("a", server), gateway("g", server), via("v", "a.example.com", "{route: ["+to("a")+"]}")}, want: closed},
		{name: "a server that would end TLS", mesh: []string{gateway("g", "{port: {number: 9000, name: p, protocol: TLS}, tls: {mode: SIMPLE, credentialName: c}, hosts: ['*']}"), via("v", "a.example.com", "{route: ["+to("a")+"]}")}, want: closed},
		{name: "a port that TLS has", mesh: []string{gateway("a", tls), gateway("g", server), via("v", "a.example.com", "{route: ["+to("a")+"]}")}, want: closed},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := xdstest.NewWorld(t, append([]string{at("a", tcp5432), at("b", tcp5432)}, tc.mesh...)...)
			node := xdstest.Node{Type: discovery.Router, Labels: map[string]string{"app": "edge"}}
			request := simulate.Request{Port: 9000, Protocol: simulate.TCP, Address: tc.address}
			if got := w.Simulate(node).Run(request).String(); got != tc.want {
				t.Errorf("it goes to %s, want %s", got, tc.want)
			}
		})
	}
}

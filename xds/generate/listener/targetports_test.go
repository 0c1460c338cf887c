package listener_test

import (
	"slices"
	"testing"

	"github.com/portolan-mesh/portolan/xds/simulate"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestGatewayTargetPorts: a gateway listens on the target ports of its service. Routes
// match the servers' own ports. Ports with one target port share a route configuration.
func TestGatewayTargetPorts(t *testing.T) {
	t.Parallel()
	mesh := []string{
		xdstest.Object("ServiceEntry", "edge", "{hosts: [edge.test], resolution: STATIC, ports: [{number: 80, name: web, protocol: HTTP}, {number: 9000, name: db, protocol: TCP}], endpoints: [{address: 10.0.0.1, ports: {web: 8080, db: 8432}}]}"),
		at("a", tcp5432),
		edgeGateway("g", "{port: {number: 80, name: web, protocol: HTTP}, hosts: ['*']}, {port: {number: 9000, name: db, protocol: TCP}, hosts: ['*']}, {port: {number: 8080, name: own, protocol: HTTP}, hosts: [own.test]}"),
		routes("v", "hosts: [web.test], gateways: [g], http: [{match: [{port: 8080}], directResponse: {status: 418}}, {match: [{port: 80}], directResponse: {status: 201}}]"),
		routes("o", "hosts: [own.test], gateways: [g], http: [{directResponse: {status: 202}}]"),
		routes("t", "hosts: [db.test], gateways: [g], tcp: [{match: [{port: 9000}], route: ["+to("a")+"]}]"),
	}
	w := xdstest.NewWorld(t, mesh...)
	p := w.Simulate(edgeNode)
	for host, want := range map[string]int{"web.test": 201, "own.test": 202} {
		r := p.Run(simulate.Request{Port: 8080, Protocol: simulate.HTTP, Host: host, Path: "/"})
		if r.Status != want || r.Listener != "0.0.0.0_8080" {
			t.Errorf("%s: %+v, want %d", host, r, want)
		}
	}
	if got := p.Routes(); !slices.Contains(got, "http.8080") || slices.Contains(got, "http.80") {
		t.Errorf("the routes are %v", got)
	}
	if got := p.Run(simulate.Request{Port: 8432, Protocol: simulate.TCP}).String(); got != "outbound|5432||a.example.com" {
		t.Errorf("bytes go to %s", got)
	}
	for _, port := range []int{80, 9000} {
		if got := p.Run(simulate.Request{Port: port, Protocol: simulate.TCP}).String(); got != "no listener" {
			t.Errorf("on port %d there is %s", port, got)
		}
	}
	elsewhere := edgeNode
	elsewhere.IP = "10.0.0.2"
	if got := w.Simulate(elsewhere).Run(simulate.Request{Port: 9000, Protocol: simulate.TCP}).String(); got != "outbound|5432||a.example.com" {
		t.Errorf("where the service has no endpoint, bytes go to %s", got)
	}
}

package virtualhost_test

import (
	"testing"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/simulate"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestFaults: what the faults of VirtualServices do to a request at a sidecar and at a
// gateway.
func TestFaults(t *testing.T) {
	t.Parallel()
	gateway := xdstest.Object("Gateway", "gw", "{selector: {istio: gateway}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}]}")
	nodes := map[string]xdstest.Node{
		"sidecar": {}, "gateway": {Type: discovery.Router, Labels: map[string]string{"istio": "gateway"}},
	}
	for _, c := range []struct{ name, fault, want string }{
		{"abort with a status", "{abort: {httpStatus: 503, percentage: {value: 100}}}", "abort 100% with 503"},
		{"abort with a gRPC status", "{abort: {grpcStatus: UNAVAILABLE, percentage: {value: 100}}}", "abort 100% with gRPC 14"},
		{"abort of a share", "{abort: {httpStatus: 400, percentage: {value: 0.57}}}", "abort 0.57% with 400, " + toWeb},
		{"delay", "{delay: {fixedDelay: 5s, percentage: {value: 100}}}", "delay 100% by 5s, " + toWeb},
		{"delay by the deprecated percent", "{delay: {fixedDelay: 5s, percent: 10}}", "delay 10% by 5s, " + toWeb},
		{"percentage wins over percent", "{delay: {fixedDelay: 5s, percent: 10, percentage: {value: 20}}}", "delay 20% by 5s, " + toWeb},
		{"delay, then abort", "{delay: {fixedDelay: 1ms, percentage: {value: 50}}, abort: {httpStatus: 599, percentage: {value: 100}}}", "delay 50% by 1ms, abort 100% with 599"},
		{"0 percent does nothing", "{abort: {httpStatus: 503, percentage: {value: 0}}}", toWeb},
		{"nor does a fault without a percentage", "{abort: {httpStatus: 503}, delay: {fixedDelay: 5s}}", toWeb},
		{"nor one without a kind", "{abort: {percentage: {value: 100}}, delay: {percentage: {value: 100}}}", toWeb},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := xdstest.NewWorld(t, web, gateway, xdstest.Object("VirtualService", "v",
				"{hosts: [web.example.com], gateways: [mesh, gw], http: [{route: [{destination: {host: web.example.com}}], fault: "+c.fault+"}]}"))
			for name, n := range nodes {
				if got := w.Simulate(n).Run(simulate.Request{Host: "web.example.com"}).String(); got != c.want {
					t.Errorf("%s: got %s, want %s", name, got, c.want)
				}
			}
		})
	}
}

// A direct response is delayed and aborted like a forwarded request.
func TestFaultOfADirectResponse(t *testing.T) {
	t.Parallel()
	run(t, []behaviour{{
		name: "delay", mesh: []string{web, routes("{directResponse: {status: 418}, fault: {delay: {fixedDelay: 1s, percentage: {value: 100}}}}")},
		request: simulate.Request{Host: "web.example.com"}, want: "delay 100% by 1s, 418",
	}})
}

package listener_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/simulate"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestDynamicDNS: the endpoint of a request is its host, in the listeners of the ports of
// such services and of gateways.
func TestDynamicDNS(t *testing.T) {
	t.Parallel()
	wild := xdstest.Object("ServiceEntry", "wild", "{hosts: ['*.example.com'], resolution: DYNAMIC_DNS, location: MESH_EXTERNAL, ports: [{number: 80, name: http, protocol: HTTP}, {number: 90, name: tcp, protocol: TCP}]}")
	one := xdstest.HTTPService("one", "one.example.com", "10.1.0.1")
	routed := xdstest.Object("VirtualService", "v", "{hosts: ['*.example.com'], gateways: [mesh, edge/gw], http: [{route: [{destination: {host: '*.example.com', port: {number: 80}}}]}]}")
	gw := xdstest.Object("Gateway", "edge/gw", "{selector: {istio: gateway}, servers: [{port: {number: 8000, name: http, protocol: HTTP}, hosts: ['*']}]}")
	sidecar, edge := xdstest.Node{}, xdstest.Node{Type: discovery.Router, Namespace: "edge", Labels: map[string]string{"istio": "gateway"}}
	for name, c := range map[string]struct {
		node      xdstest.Node
		documents []string
		request   simulate.Request
		want      string
		endpoints []string
	}{
		"its host":             {node: sidecar, documents: []string{wild}, request: simulate.Request{Host: "a.example.com"}, want: "outbound|80||*.example.com", endpoints: []string{"a.example.com:80"}},
		"its host and port":    {node: sidecar, documents: []string{wild}, request: simulate.Request{Host: "a.example.com:81"}, want: "outbound|80||*.example.com", endpoints: []string{"a.example.com:81"}},
		"another host":         {node: sidecar, documents: []string{wild}, request: simulate.Request{Host: "a.example.org"}, want: "PassthroughCluster"},
		"a service of its own": {node: sidecar, documents: []string{wild, one}, request: simulate.Request{Host: "one.example.com"}, want: "outbound|80||one.example.com", endpoints: []string{"10.1.0.1:80"}},
		"by a route":           {node: sidecar, documents: []string{wild, routed}, request: simulate.Request{Host: "b.example.com"}, want: "outbound|80||*.example.com", endpoints: []string{"b.example.com:80"}},
		"at a gateway":         {node: edge, documents: []string{wild, routed, gw}, request: simulate.Request{Port: 8000, Host: "c.example.com"}, want: "outbound|80||*.example.com", endpoints: []string{"c.example.com:80"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := xdstest.NewWorld(t, c.documents...).Simulate(c.node).Run(c.request)
			if got.String() != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			if diff := cmp.Diff(c.endpoints, got.Endpoints()); diff != "" {
				t.Error(diff)
			}
		})
	}
	if got := xdstest.NewWorld(t, wild).Simulate(sidecar).Run(simulate.Request{Port: 90, Protocol: simulate.TCP}); got.Err == nil {
		t.Errorf("a port that names no host: %s", got)
	}
}

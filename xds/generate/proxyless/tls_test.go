package proxyless_test

import (
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"github.com/portolan-mesh/portolan/xds/generate/proxyless"
)

// TestNoPlaintextInsteadOfTLS: a client has no endpoints for a service that requires TLS.
func TestNoPlaintextInsteadOfTLS(t *testing.T) {
	t.Parallel()
	hosts := object("ServiceEntry", "web", `{hosts: [web.example.com], resolution: DNS, ports: [{number: 80, name: grpc, protocol: GRPC}], endpoints: [{address: b.example.com}]}`)
	const name = "outbound|80||web.example.com"
	for _, entry := range []string{web, hosts} {
		for tls, sends := range map[string]bool{"{mode: DISABLE}": true, "{mode: SIMPLE}": false, "{mode: ISTIO_MUTUAL}": false} {
			rule := object("DestinationRule", "web", "{host: web.example.com, trafficPolicy: {tls: "+tls+"}}")
			c := built[*clusterv3.Cluster](t, proxyless.Clusters{}, client, entry, rule)[name]
			a := built[*endpointv3.ClusterLoadAssignment](t, proxyless.Endpoints{}, client, entry, rule)[name]
			if c == nil || sends != (len(c.GetLoadAssignment().GetEndpoints())+len(a.GetEndpoints()) > 0) || !sends && a == nil {
				t.Errorf("with %s the cluster is %v, its endpoints are %v", tls, c, a)
			}
		}
	}
}

package integration

import (
	"fmt"
	"testing"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/explain"
)

// bytesGateway is a Gateway with servers for TCP on some ports.
func bytesGateway(ports ...int) string {
	servers := ""
	for _, port := range ports {
		servers += fmt.Sprintf("\n  - {port: {number: %d, name: p%d, protocol: TCP}, bind: 127.0.0.1, hosts: ['*.shop.test']}", port, port)
	}
	return fill(`
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: bytes, namespace: shop}
spec:
  selector: {app: edge}
  servers: $servers
`, "$servers", servers)
}

// gatewayShares is a tcp route of the Gateway for a port, to two ledgers by weights.
func gatewayShares(name string, port, first, second int) string {
	return fill(`
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: $name, namespace: shop}
spec:
  hosts: [$name.shop.test]
  gateways: [bytes]
  tcp:
  - match: [{port: $port}]
    route: [{destination: {host: ledger.shop.test}, weight: $first}, {destination: {host: other.shop.test}, weight: $second}]
`, "$name", name, "$port", port, "$first", first, "$second", second)
}

// TestEnvoyGatewayTCP moves a gateway port's connections between services by weights, back and
// forth while clients connect. Every connection is served. A port is open as long as there is a
// route for it.
func TestEnvoyGatewayTCP(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, port, more := startServer(t, serverOptions{}), freePort(t), freePort(t)
		one, two := startTCPUpstream(t, "one"), startTCPUpstream(t, "two")
		s.apply(streamEntry("ledger", "TCP", freePort(t), one), streamEntry("other", "TCP", freePort(t), two), bytesGateway(port, more), gatewayShares("a", port, 100, 0))
		edge := s.startEnvoy(envoyOptions{kind: "router", name: "edge", labels: "app=edge", variant: v})
		awaitGreeting(t, port, "one")
		if name, err := greeting(t.Context(), more); err == nil {
			t.Errorf("no route is for port %d, and %s answers", more, name)
		}

		calls := startCalls(t, port)
		s.awaitSynced(s.apply(gatewayShares("a", port, 0, 100)), "edge")
		awaitGreeting(t, port, "two")
		s.awaitSynced(s.apply(gatewayShares("a", port, 30, 70)), "edge")
		expectShares(t, port)
		for range 3 {
			s.apply(gatewayShares("a", port, 0, 100))
			s.awaitSynced(s.apply(gatewayShares("a", port, 100, 0), gatewayShares("b", more, 0, 100)), "edge")
			awaitGreeting(t, port, "one")
			awaitGreeting(t, more, "two")
			s.awaitSynced(s.remove(gatewayShares("b", more, 0, 100)), "edge")
			awaitClosed(t, more)
		}
		calls.expectAll()

		e, err := s.explain("gateway/shop/bytes", "a.shop.test:"+fmt.Sprint(port), request{})
		if err != nil || e.Outcome != explain.Forwarded || e.Route == nil || e.Route.Object != "virtualservice/shop/a" || e.Route.Field != "spec.tcp[0]" {
			t.Errorf("the explanation is %v, %+v", err, e)
		}
		s.awaitSynced(s.remove(gatewayShares("a", port, 100, 0)), "edge")
		awaitClosed(t, port)
		s.expectNothingRejected()
		edge.expectNothingRejected()
	})
}

// expectShares connects to a port whose connections two upstreams share 30 to 70.
func expectShares(t testing.TB, port int) {
	t.Helper()
	const n = 400
	got := map[string]int{}
	for range n {
		name, err := greeting(t.Context(), port)
		if err != nil {
			t.Fatal(err)
		}
		got[name]++
	}
	// The bounds are five standard deviations from a share of 0.7.
	if got["one"]+got["two"] != n || got["two"] < 234 || got["two"] > 326 {
		t.Errorf("of %d connections shared 30 to 70: %v", n, got)
	}
}

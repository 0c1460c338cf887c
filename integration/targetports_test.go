package integration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// edgeService is the service of a gateway, with target ports that differ from its ports.
func edgeService(web, webTarget, tcp, tcpTarget int) string {
	return fill(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: edge, namespace: shop}
spec:
  hosts: [edge.shop.test]
  resolution: STATIC
  ports: [{number: $webPort, name: web, protocol: HTTP}, {number: $tcpPort, name: tcp, protocol: TCP}]
  endpoints: [{address: 10.0.0.1, ports: {web: $webTarget, tcp: $tcpTarget}}]
`, "$webPort", web, "$webTarget", webTarget, "$tcpPort", tcp, "$tcpTarget", tcpTarget)
}

// TestEnvoyGatewayTargetPorts: a gateway listens on the target ports of its service, and
// follows changes of these. If two servers meet on one, the younger is closed and gets a
// verdict.
func TestEnvoyGatewayTargetPorts(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, web, tcp := startServer(t, serverOptions{}), freePort(t), freePort(t)
		a, b, c := freePort(t), freePort(t), freePort(t)
		s.apply(streamEntry("ledger", "TCP", freePort(t), startTCPUpstream(t, "one")), bytesGateway(tcp), gatewayShares("a", tcp, 100, 0),
			streamEntry("other", "TCP", freePort(t), startTCPUpstream(t, "two")),
			tlsGateway("plain", fmt.Sprintf("\n  - {port: {number: %d, name: web, protocol: HTTP}, bind: 127.0.0.1, hosts: ['*']}", web)),
			fill(`
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: shop}
spec:
  hosts: [web.shop.test]
  gateways: [plain]
  http: [{match: [{port: $port}], directResponse: {status: 200, body: {string: web}}}]
`, "$port", web), edgeService(web, a, tcp, b))
		edge := s.startEnvoy(envoyOptions{kind: "router", name: "edge", labels: "app=edge", variant: v})
		answers := func(port int) { awaitReply(t, request{port: port, host: "web.shop.test", path: "/"}, "200") }
		answers(a)
		awaitGreeting(t, b, "one")
		awaitClosed(t, web)
		awaitClosed(t, tcp)

		s.awaitSynced(s.apply(edgeService(web, a, tcp, c)), "edge")
		awaitGreeting(t, c, "one")
		awaitClosed(t, b)

		s.awaitSynced(s.apply(edgeService(web, a, tcp, a)), "edge")
		awaitGreeting(t, a, "one") // the older Gateway keeps the port
		awaitClosed(t, c)
		eventually(t, "the younger server is told of", func() error {
			out := s.try("", "analyze", "-n", "shop").stdout
			if !strings.Contains(out, "PTL0119") || !strings.Contains(out, fmt.Sprintf("are port %d of", a)) {
				return fmt.Errorf("analyze says\n%s", out)
			}
			return nil
		})
		s.awaitSynced(s.apply(edgeService(web, b, tcp, a)), "edge")
		answers(b)
		s.awaitSynced(s.remove(edgeService(web, b, tcp, a)), "edge")
		answers(web)
		awaitGreeting(t, tcp, "one")
		s.expectNothingRejected()
		edge.expectNothingRejected()
	})
}

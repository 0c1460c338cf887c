package integration

import (
	"testing"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// ruleForClients is a rule of the shop for the proxies with one label. It makes them send all
// requests of a user to one endpoint.
func ruleForClients(app string) string {
	return fill(`
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: reviews-of-some, namespace: shop}
spec:
  host: $host
  workloadSelector: {matchLabels: {app: $app}}
  trafficPolicy: {loadBalancer: {consistentHash: {httpHeaderName: x-user}}}
`, "$host", shopHost, "$app", app)
}

// TestEnvoyRuleForClients: a rule with a workloadSelector changes what one of two proxies of a
// namespace does, and then the other.
func TestEnvoyRuleForClients(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, x := startServer(t, serverOptions{}), newShop(t)
		toBoth := fill(`
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: reviews, namespace: shop}
spec:
  hosts: [$host]
  gateways: [edge, mesh]
  http: [{route: [{destination: {host: $host}}]}]
`, "$host", shopHost)
		s.apply(x.entry(x.v1, x.v2), policyFor("{loadBalancer: {simple: ROUND_ROBIN}}"), ruleForClients("client"), toBoth, x.door())
		edge, client := s.startPair(v)
		as := func(q request) request {
			q.header = map[string]string{"x-user": "anna"}
			return q
		}
		one := func(got map[string]int) bool { return got["v1"] == 20 || got["v2"] == 20 }
		both := func(got map[string]int) bool { return got["v1"] >= 5 && got["v1"]+got["v2"] == 20 }
		awaitAnswersOf(t, "the sidecar, which the rule selects, hashes", as(x.atSidecar("/")), one)
		awaitAnswersOf(t, "the gateway does not", as(x.atGateway("/")), both)
		s.awaitSynced(s.apply(ruleForClients("edge")), "edge", "client")
		awaitAnswersOf(t, "the gateway, which the rule selects now, hashes", as(x.atGateway("/")), one)
		awaitAnswersOf(t, "the sidecar does not any more", as(x.atSidecar("/")), both)
		s.expectNothingRejected()
		edge.expectNothingRejected()
		client.expectNothingRejected()
	})
}

package integration

import (
	"net/http"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// TestEnvoySubsetRenameUnderLoad renames the subset that all requests take, in the rule and
// the routes as one batch, and back, while requests run.
func TestEnvoySubsetRenameUnderLoad(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, x := startServer(t, serverOptions{}), newShop(t)
		s.apply(x.all(100, 0))
		edge, client := s.startPair(v)
		awaitReply(t, x.atGateway("/"), "v1")
		awaitReply(t, x.atSidecar("/"), "v1")
		loads := []*load{startLoad(t, "gateway", x.atGateway("/")), startLoad(t, "sidecar", x.atSidecar("/"))}
		renamed := strings.NewReplacer("name: v1,", "name: stable,", "subset: v1}", "subset: stable}").Replace
		for range 2 {
			for _, form := range []func(string) string{renamed, strings.Clone} {
				s.awaitSynced(s.apply(form(x.rule()), form(x.routes(100, 0))), "edge", "client")
				for _, l := range loads {
					l.sample(50)
				}
			}
		}
		for _, l := range loads {
			l.expectUnharmed()
		}
		s.expectNothingRejected()
		edge.expectNothingRejected()
		client.expectNothingRejected()
	})
}

// TestEnvoyOutlierReturnsUnderLoad has an endpoint fail, be ejected and come back while
// requests run, which are tried again elsewhere. Meanwhile its rule and its service change.
func TestEnvoyOutlierReturnsUnderLoad(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		const eject = "outlierDetection: {consecutive5xxErrors: 2, interval: 0.1s, baseEjectionTime: 2s, maxEjectionPercent: 100}"
		s, x := startServer(t, serverOptions{}), newShop(t)
		s.apply(x.entry(x.v1, x.v2), policyFor("{"+eject+"}"), fill(`
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: reviews, namespace: shop}
spec:
  hosts: [$host]
  http: [{retries: {attempts: 5, retryOn: "503"}, route: [{destination: {host: $host}}]}]
`, "$host", shopHost))
		client := s.startEnvoy(envoyOptions{kind: "sidecar", name: "client", variant: v})
		q := x.atSidecar("/")
		both := func(got map[string]int) bool { return got["v1"] > 0 && got["v2"] > 0 }
		awaitReply(t, q, "v1")
		awaitAnswersOf(t, "both answer", q, both)
		l := startLoad(t, "sidecar", q)
		x.v1.failing.Store(http.StatusServiceUnavailable)
		awaitAnswersOf(t, "v1 is ejected", q, func(got map[string]int) bool { return got["v2"] == 20 })
		far := startUpstream(t, "v3")
		s.awaitSynced(s.apply(x.entry(x.v1, x.v2, far)), "client")
		awaitAnswersOf(t, "a new endpoint answers", q, func(got map[string]int) bool { return got["v3"] > 0 })
		x.v1.failing.Store(0)
		awaitAnswersOf(t, "v1 is back", q, both)
		s.awaitSynced(s.apply(policyFor("{connectionPool: {tcp: {maxConnections: 100}}, "+eject+"}")), "client")
		awaitAnswersOf(t, "both answer by the changed rule", q, both)
		l.expectUnharmed()
		s.expectNothingRejected()
		client.expectNothingRejected()
	})
}

// TestEnvoyLocalityComesUnderLoad has the endpoints of a service move: a far locality comes,
// a near one, the far one goes. Requests run meanwhile.
func TestEnvoyLocalityComesUnderLoad(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, x := startServer(t, serverOptions{}), newShop(t)
		far, near := "locality: us/a, labels: {version: v1}", "locality: eu/a, labels: {version: v2}"
		at := strings.NewReplacer("labels: {version: v1}", far, "labels: {version: v2}", near).Replace
		s.apply(at(x.entry(x.v1)), policyFor("{outlierDetection: {consecutive5xxErrors: 5}, loadBalancer: {localityLbSetting: {failover: [{from: eu, to: us}]}}}"))
		client := s.startEnvoy(envoyOptions{kind: "sidecar", name: "client", variant: v, locality: "eu/a"})
		q := x.atSidecar("/")
		only := func(name string) func(map[string]int) bool {
			return func(got map[string]int) bool { return got[name] == 20 }
		}
		awaitReply(t, q, "v1")
		l := startLoad(t, "sidecar", q)
		for _, step := range []struct {
			endpoints []*upstream
			answers   string
		}{{[]*upstream{x.v1, x.v2}, "v2"}, {[]*upstream{x.v2}, "v2"}, {[]*upstream{x.v2, x.v1}, "v2"}, {[]*upstream{x.v1}, "v1"}} {
			s.awaitSynced(s.apply(at(x.entry(step.endpoints...))), "client")
			awaitAnswersOf(t, step.answers+" answers alone", q, only(step.answers))
		}
		l.expectUnharmed()
		s.expectNothingRejected()
		client.expectNothingRejected()
	})
}

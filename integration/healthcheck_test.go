package integration

import (
	"net/http"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// TestEnvoyHealthCheck: a proxy checks workloads itself. A failing one gets no requests until
// it recovers; one without the annotation gets requests whatever it answers. For telemetry, the
// proxy knows the workload of each endpoint.
func TestEnvoyHealthCheck(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, x := startServer(t, serverOptions{}), newShop(t)
		workload := func(u *upstream, annotations string) string {
			return fill(`
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {name: $name, namespace: shop, annotations: {$annotations}}
spec: {address: 127.0.0.1, ports: {http: $port}, labels: {app: reviews, version: $name}}
`, "$name", u.name, "$annotations", annotations, "$port", u.port)
		}
		const check = `portolan.io/health-check-path: "/healthz", portolan.io/health-check-interval: 100ms`
		s.apply(fill(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: reviews, namespace: shop}
spec:
  hosts: [$host]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: $port, name: http, protocol: HTTP}]
  workloadSelector: {labels: {app: reviews}}
`, "$host", shopHost, "$port", x.service), workload(x.v1, check), workload(x.v2, check))
		client := s.startEnvoy(envoyOptions{kind: "sidecar", name: "client", variant: v})
		q := x.atSidecar("/")
		both := func(got map[string]int) bool { return got["v1"] > 0 && got["v2"] > 0 && got["v1"]+got["v2"] == 20 }
		awaitAnswersOf(t, "both answer", q, both)
		x.v1.failing.Store(http.StatusServiceUnavailable)
		awaitAnswersOf(t, "v1 fails its check", q, func(got map[string]int) bool { return got["v2"] == 20 })
		x.v1.failing.Store(0)
		awaitAnswersOf(t, "v1 is back", q, both)

		s.awaitSynced(s.apply(workload(x.v1, "")), "client")
		x.v1.failing.Store(http.StatusTeapot)
		awaitAnswersOf(t, "v1 is not checked any more", q, func(got map[string]int) bool { return got["418"] > 0 && got["v2"] > 0 })
		if dump, err := client.get("/config_dump?include_eds"); err != nil || !strings.Contains(string(dump), `"v1;shop;reviews;v1;"`) {
			t.Errorf("the endpoints in Envoy do not name workload v1: %v", err)
		}
		s.expectNothingRejected()
		client.expectNothingRejected()
	})
}

package integration

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// setHealth reports the health of a workload in the namespace shop, as an agent would.
func (s *server) setHealth(name, status string) {
	s.t.Helper()
	body := fill(`{"apiVersion": "networking.istio.io/v1", "kind": "WorkloadEntry", "metadata": {"name": "$name"},
		"status": {"conditions": [{"type": "Healthy", "status": "$status", "message": "probed"}]}}`, "$name", name, "$status", status)
	url := s.url("/apis/networking.istio.io/v1/namespaces/shop/workloadentries/" + name + "/status")
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodPut, url, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	response, err := s.client.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if text, _ := io.ReadAll(response.Body); response.StatusCode != http.StatusOK {
		s.t.Fatalf("the status of %s is %s: %s: %s", name, status, response.Status, text)
	}
}

// TestHealthMovesTraffic reports a workload as unhealthy and healthy again while requests run.
// Requests leave it within a second and come back, none fails, and the server sends nothing but
// endpoints.
func TestHealthMovesTraffic(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, port := startServer(t, serverOptions{}), freePort(t)
		one, two := startUpstream(t, "one"), startUpstream(t, "two")
		workload := func(u *upstream) string {
			return fill(`
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {name: $name, namespace: shop, annotations: {proxy.istio.io/health-checks-enabled: "true"}}
spec: {address: 127.0.0.1, ports: {http: $port}, locality: eu/$name, labels: {app: red, version: $name}}
`, "$name", u.name, "$port", u.port)
		}
		s.apply(fill(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: red, namespace: shop}
spec:
  hosts: [red.shop.test]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: $port, name: http, protocol: HTTP}]
  workloadSelector: {labels: {app: red}}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: red, namespace: shop}
spec: {host: red.shop.test, subsets: [{name: one, labels: {version: one}}, {name: none, labels: {version: none}}]}
`, "$port", port), workload(one), workload(two))
		client := s.startEnvoy(envoyOptions{kind: "sidecar", name: "client", variant: v})
		red := request{port: port, host: "red.shop.test"}
		awaitReply(t, red, "503") // until the first report
		s.setHealth("one", "True")
		awaitReply(t, red, "one")
		s.setHealth("two", "True")
		awaitReply(t, red, "two")

		traffic, before := startLoad(t, "client", red), s.sentResources()
		for range 3 {
			s.setHealth("one", "False")
			left := time.Now()
			awaitOnly(t, []*load{traffic}, "two")
			expectWithin(t, "requests leave the unhealthy workload", left)
			s.setHealth("one", "True")
			back := time.Now()
			eventually(t, "requests come back", func() error {
				if sample := traffic.sample(10); sample["one"] == 0 {
					return fmt.Errorf("answered by %v", sample)
				}
				return nil
			})
			expectWithin(t, "requests come back", back)
		}
		s.setHealth("one", "False")
		awaitOnly(t, []*load{traffic}, "two")
		traffic.expectUnharmed()
		expectEqual(t, "types sent for health", typesOf(less(s.sentResources(), before)), []string{"EDS"})
		expectShown(t, s)
		s.kill()
		s.start()
		awaitReply(t, red, "two")
		expectShown(t, s)
		client.expectNothingRejected()
	})
}

func expectWithin(t *testing.T, what string, since time.Time) {
	t.Helper()
	if took := time.Since(since); late(took, time.Second) {
		t.Errorf("%s after %v, later than a second", what, took)
	}
}

// expectShown checks what the command line shows of one unhealthy workload of two.
func expectShown(t *testing.T, s *server) {
	t.Helper()
	for _, c := range []struct {
		args, want []string
	}{
		{[]string{"get", "we", "-n", "shop", "-o", "wide"}, []string{"UNHEALTHY", "HEALTHY", "eu/one"}},
		{[]string{"get", "we/one", "-n", "shop", "-o", "yaml"}, []string{"type: Healthy", `status: "False"`, "message: probed"}},
		{[]string{"describe", "service", "red.shop.test"}, []string{
			"1 healthy, 1 left out", "eu/one", "LEFT OUT", "! probed", "shop/two", "destinationrule/shop/red", "! selects nothing",
		}},
	} {
		out := s.must("", c.args...)
		for _, want := range c.want {
			if !strings.Contains(out, want) {
				t.Errorf("portolan %s does not show %q:\n%s", strings.Join(c.args, " "), want, out)
			}
		}
	}
}

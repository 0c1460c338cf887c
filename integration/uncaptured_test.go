package integration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// TestPortsThatNobodyCaptures: two TCP services share a port at a sidecar without traffic
// capture, and the older one gets all connections. The verdict and the explanation agree with
// that.
func TestPortsThatNobodyCaptures(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, port := startServer(t, serverOptions{}), freePort(t)
		entry := func(name string, target int) string {
			return fill(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: $name, namespace: shop}
spec:
  hosts: [$name.shop.test]
  resolution: STATIC
  ports: [{number: $port, name: tcp, protocol: TCP}]
  endpoints: [{address: 127.0.0.1, ports: {tcp: $target}}]
`, "$name", name, "$port", port, "$target", target)
		}
		first, second := startTCPUpstream(t, "first"), startTCPUpstream(t, "second")
		s.apply(entry("first", first))
		s.apply(entry("second", second))
		if out := s.try("", "analyze"); out.stdout != "" {
			t.Errorf("without a sidecar: %s", out.stdout)
		}
		client := s.startEnvoy(envoyOptions{kind: "sidecar", name: "client", variant: v})
		awaitGreeting(t, port, "first")
		eventually(t, "the verdict", func() error {
			if out := s.try("", "analyze"); strings.Count(out.stdout, "PTL0213") != 1 || !strings.Contains(out.stdout, "serviceentry/shop/second: spec.hosts[0] ") {
				return fmt.Errorf("analyze says: %s", out.stdout)
			}
			return nil
		})
		out := s.must("", "explain", "request", "--from", "client", "--to", fmt.Sprintf("second.shop.test:%d", port))
		if !strings.Contains(out, "! it fails: the proxy captures no traffic") || !strings.Contains(out, "serviceentry/shop/first") {
			t.Errorf("explain says:\n%s", out)
		}
		s.remove(entry("first", first))
		awaitGreeting(t, port, "second")
		eventually(t, "no verdict", func() error {
			if out := s.try("", "analyze"); out.stdout != "" {
				return fmt.Errorf("analyze says: %s", out.stdout)
			}
			return nil
		})
		client.expectNothingRejected()
	})
}

package integration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/storage/schema"
)

// TestTheLargestServiceEntry writes the largest ServiceEntry, replaces all its hosts, and
// deletes it, each as one change. One with a host more is refused with its name.
func TestTheLargestServiceEntry(t *testing.T) {
	t.Parallel()
	s := startServer(t, serverOptions{})
	large := func(prefix string, hosts int) string {
		var b strings.Builder
		b.WriteString("apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: large, namespace: shop}\n" +
			"spec:\n  resolution: STATIC\n  ports: [{number: 80, name: http, protocol: HTTP}]\n  endpoints: [{address: 10.0.0.1}]\n  hosts:\n")
		for i := range hosts {
			_, _ = fmt.Fprintf(&b, "  - %s%d.example\n", prefix, i)
		}
		return b.String()
	}
	s.must(large("a", schema.MaxServiceHosts), "apply", "-f", "-")
	s.must(large("b", schema.MaxServiceHosts), "apply", "-f", "-")
	out := s.try(large("c", schema.MaxServiceHosts+1), "apply", "-f", "-")
	if out.code != 65 || !strings.Contains(out.stderr, "serviceentry/shop/large: spec.hosts: has 4001 hosts, and may have 4000") {
		t.Errorf("exit code %d: %s", out.code, out.stderr)
	}
	s.must("", "delete", "serviceentry", "large", "-n", "shop")
}

package integration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// TestEnvoyZones: a proxy prefers its own zone as far as each endpoint gets the same load. It
// knows how many instances of its own service are in which zone. Other regions get nothing.
func TestEnvoyZones(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		const zoned = "{loadBalancer: {zoneAwareLbSetting: %s}}"
		s, x, port := startServer(t, serverOptions{}), newShop(t), freePort(t)
		entry := x.entry()
		for _, locality := range []string{"eu/a", "eu/b", "eu/a", "eu/b", "eu/a", "eu/b", "us/c"} {
			zone := locality[len("eu/"):]
			entry += fmt.Sprintf("  - {address: 127.0.0.1, ports: {http: %d}, locality: %s}\n", startUpstream(t, zone).port, locality)
		}
		s.apply(entry, callers(port, "eu/a", "eu/b"), policyFor(fmt.Sprintf(zoned, "{}")))
		client := s.startEnvoy(envoyOptions{kind: "sidecar", name: "client", variant: v, locality: "eu/a", selfDiscovery: true})
		q := x.atSidecar("/")
		local := func(got map[string]int) bool { return got["a"] == 20 }
		region := func(got map[string]int) bool { return got["a"] > 0 && got["b"] > 0 && got["a"]+got["b"] == 20 }
		anywhere := func(got map[string]int) bool { return got["b"] > 0 && got["c"] > 0 }

		awaitReply(t, q, "a")
		awaitAnswersOf(t, "as many callers as endpoints are in each zone: all stays in the zone", q, local)
		s.awaitSynced(s.apply(callers(port, "eu/a", "eu/a", "eu/a", "eu/b")), "client")
		awaitAnswersOf(t, "most callers are in this zone: some goes to the other one", q, region)
		s.awaitSynced(s.apply(callers(port, "eu/a", "eu/b", "us/a", "us/b", "us/b")), "client")
		awaitAnswersOf(t, "the callers of another region do not count", q, local)
		s.awaitSynced(s.apply(policyFor(fmt.Sprintf(zoned, "{minClusterSize: 7}"))), "client")
		awaitAnswersOf(t, "the service is too small: all zones of the region have shares", q, region)
		s.awaitSynced(s.apply(policyFor(fmt.Sprintf(zoned, "{minClusterSize: 6}"))), "client")
		awaitAnswersOf(t, "the service is as large as it must be", q, local)
		s.awaitSynced(s.apply(policyFor(fmt.Sprintf(zoned, "{enabled: false}"))), "client")
		awaitAnswersOf(t, "nothing is preferred", q, anywhere)
		s.expectDump("zones", client, "EDS")
		if out := s.must("", "proxy", "config", "endpoints", "client"); !strings.Contains(out, "local_cluster") {
			t.Errorf("the endpoints of the proxy's own service are not listed:\n%s", out)
		}
		s.expectNothingRejected()
		client.expectNothingRejected()
	})
}

// callers is the service of the proxy with address 10.0.0.1, with one endpoint for each
// locality. The first is the proxy's.
func callers(port int, localities ...string) string {
	var doc strings.Builder
	fmt.Fprintf(&doc, `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: callers, namespace: shop}
spec:
  hosts: [callers.shop.test]
  resolution: STATIC
  ports: [{number: %d, name: http, protocol: HTTP}]
  endpoints:
`, port)
	for i, locality := range localities {
		fmt.Fprintf(&doc, "  - {address: 10.0.0.%d, locality: %s}\n", i+1, locality)
	}
	return doc.String()
}

package xds_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestAChangeOfHealthSendsEndpointsAlone: a change of health sends each client one load
// assignment, and nothing else of any type.
func TestAChangeOfHealthSendsEndpointsAlone(t *testing.T) {
	t.Parallel()
	variants(t, func(t *testing.T, v protocol.Variant) {
		s := xdstest.NewServer(t, catalogue.Types())
		entry := func(i int) string {
			return fmt.Sprintf("apiVersion: networking.istio.io/v1\nkind: WorkloadEntry\nmetadata: {name: w%[1]d, namespace: shop, "+
				"annotations: {proxy.istio.io/health-checks-enabled: 'true'}}\nspec: {address: 10.1.0.%[1]d, labels: {app: a}}\n", i)
		}
		settledAt := s.Apply(service("other", 8080, "10.2.0.1"), entry(1), entry(2), xdstest.Object("ServiceEntry", "shop/a",
			"{hosts: [a.shop.example], resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}], workloadSelector: {labels: {app: a}}}"))
		s.SetHealth("shop", "w2", true)
		c := dial(t, s, v, nil)
		settled(t, s, settledAt)
		const name = "outbound|80||a.shop.example"
		has := func(address string, want bool) {
			t.Helper()
			c.Await(fmt.Sprintf("%s: %v", address, want), func(held func(string) map[string]xdstest.Held) bool {
				h, ok := held(xdstest.EndpointType)[name]
				return ok && strings.Contains(string(h.Body.GetValue()), address) == want
			})
		}
		has("10.1.0.2", true)
		has("10.1.0.1", false)
		before := answers(c)
		for i, healthy := range []bool{true, false, true} {
			s.SetHealth("shop", "w1", healthy)
			has("10.1.0.1", healthy)
			now := answers(c)
			want := maps.Clone(before)
			want[xdstest.EndpointType] += i + 1
			if !maps.Equal(now, want) {
				t.Fatalf("answers by type after %d changes: %v, want %v", i+1, now, want)
			}
			if all := c.Answers(xdstest.EndpointType); v == protocol.Delta && len(all[len(all)-1].Names()) != 1 {
				t.Errorf("sent: %v", all[len(all)-1].Names())
			}
		}
	})
}

// answers counts the responses that a client got, by type.
func answers(c *xdstest.Client) map[string]int {
	out := map[string]int{}
	for _, typeURL := range []string{xdstest.ClusterType, xdstest.EndpointType, xdstest.ListenerType, xdstest.RouteType} {
		out[typeURL] = len(c.Answers(typeURL))
	}
	return out
}

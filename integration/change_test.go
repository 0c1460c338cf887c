package integration

import (
	"fmt"
	"testing"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// TestEnvoyWeightChangeUnderLoad moves traffic between versions and back while
// requests run through a gateway and a sidecar.
func TestEnvoyWeightChangeUnderLoad(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, x := startServer(t, serverOptions{}), newShop(t)
		s.apply(x.all(100, 0))
		edge, client := s.startPair(v)
		awaitReply(t, x.atGateway("/"), "v1")
		awaitReply(t, x.atSidecar("/"), "v1")
		loads := []*load{startLoad(t, "gateway", x.atGateway("/")), startLoad(t, "sidecar", x.atSidecar("/"))}
		for _, share := range []int{90, 50, 0, 100, 20} {
			s.awaitSynced(s.apply(x.routes(share, 100-share)), "edge", "client")
			for _, l := range loads {
				expectShare(t, fmt.Sprintf("%s at %d/%d", l.name, share, 100-share), l.sample(200), "v1", share)
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

// TestEnvoyEndpointChangeUnderLoad replaces the endpoints of a service, one after the other,
// while requests run. No cluster and no listener changes.
func TestEnvoyEndpointChangeUnderLoad(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, x := startServer(t, serverOptions{}), newShop(t)
		third := startUpstream(t, "v1") // a second endpoint of v1
		third.name = "third"
		s.apply(x.all(100, 0))
		edge, client := s.startPair(v)
		awaitReply(t, x.atGateway("/"), "v1")
		awaitReply(t, x.atSidecar("/"), "v1")
		loads := []*load{startLoad(t, "gateway", x.atGateway("/")), startLoad(t, "sidecar", x.atSidecar("/"))}
		untouched := configOf(edge.mustHold())
		asV1 := func(u *upstream) *upstream { return &upstream{name: "v1", port: u.port} }
		for range 4 {
			s.awaitSynced(s.apply(x.entry(x.v1, asV1(third), x.v2)), "edge", "client")
			for _, l := range loads {
				expectBoth(t, l.name, l.sample(100), "v1", "third")
			}
			s.awaitSynced(s.apply(x.entry(asV1(third), x.v2)), "edge", "client")
			awaitOnly(t, loads, "third")
			s.awaitSynced(s.apply(x.entry(x.v1, x.v2)), "edge", "client")
			awaitOnly(t, loads, "v1")
		}
		for _, l := range loads {
			l.expectUnharmed()
		}
		expectEqual(t, "clusters, listeners and routes of the gateway", configOf(edge.mustHold()), untouched)
		s.expectNothingRejected()
		edge.expectNothingRejected()
		client.expectNothingRejected()
	})
}

func expectBoth(t *testing.T, name string, sample map[string]int, one, two string) {
	t.Helper()
	if sample[one] == 0 || sample[two] == 0 {
		t.Errorf("%s: not both of %s and %s answer: %v", name, one, two, sample)
	}
}

// awaitOnly waits until one upstream answers all requests of the loads.
func awaitOnly(t *testing.T, loads []*load, name string) {
	t.Helper()
	for _, l := range loads {
		eventually(t, l.name+" is answered by "+name+" alone", func() error {
			if sample := l.sample(20); len(sample) != 1 || sample[name] == 0 {
				return fmt.Errorf("by %v", sample)
			}
			return nil
		})
	}
}

// configOf returns an Envoy's resources without endpoints.
func configOf(all map[string]acceptedResource) map[string]acceptedResource {
	out := map[string]acceptedResource{}
	for name, h := range all {
		if len(name) < 8 || name[:8] != "endpoint" {
			out[name] = h
		}
	}
	return out
}

// TestEnvoyDeletesWithdraw deletes the objects one after the other. The proxies lose what was
// built from them, and continue to serve the rest.
func TestEnvoyDeletesWithdraw(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, x := startServer(t, serverOptions{}), newShop(t)
		s.apply(x.all(0, 100))
		edge, client := s.startPair(v)
		awaitReply(t, x.atGateway("/"), "v2")
		awaitReply(t, x.atSidecar("/"), "v2")
		subset := fmt.Sprintf("outbound|%d|v2|%s", x.service, shopHost)
		whole := fmt.Sprintf("outbound|%d||%s", x.service, shopHost)
		client.awaitCluster(subset, true)

		s.awaitSynced(s.remove(x.routes(0, 100)), "edge", "client")
		awaitReply(t, x.atGateway("/"), "404")
		eventually(t, "the sidecar uses the service without routes", func() error {
			if got := send(t, x.atSidecar("/")); got.status != 200 {
				return fmt.Errorf("%s", got)
			}
			return nil
		})

		s.awaitSynced(s.remove(x.rule()), "edge", "client")
		client.awaitCluster(subset, false)
		edge.awaitCluster(subset, false)
		client.awaitCluster(whole, true)

		s.awaitSynced(s.remove(x.entry()), "edge", "client")
		client.awaitCluster(whole, false)
		edge.awaitCluster(whole, false)
		awaitClosed(t, x.service)

		s.awaitSynced(s.remove(x.door()), "edge", "client")
		awaitClosed(t, x.gateway)

		s.awaitSynced(s.apply(x.all(100, 0)), "edge", "client")
		awaitReply(t, x.atGateway("/"), "v1")
		awaitReply(t, x.atSidecar("/"), "v1")
		s.expectNothingRejected()
		edge.expectNothingRejected()
		client.expectNothingRejected()
	})
}

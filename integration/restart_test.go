package integration

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// TestEnvoyKillServer kills the server: the proxies continue to serve, and a server that starts
// on the same data finds them in sync.
func TestEnvoyKillServer(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, x := startServer(t, serverOptions{}), newShop(t)
		s.apply(x.all(50, 50))
		edge, client := s.startPair(v)
		awaitReply(t, request{port: x.gateway, host: shopHost, path: "/"}, send(t, x.atGateway("/")).String())
		loads := []*load{startLoad(t, "gateway", x.atGateway("/")), startLoad(t, "sidecar", x.atSidecar("/"))}
		before := map[string]map[string]acceptedResource{"edge": edge.mustHold(), "client": client.mustHold()}

		s.kill()
		for _, l := range loads {
			expectShare(t, l.name+" without a server", l.sample(200), "v1", 50)
		}
		s.start()
		s.awaitSynced(s.revision(), "edge", "client")
		// Well within the time for which the report of the killed server would stand.
		expectOutcome(t, "who has it after the restart", s.try("", "wait", "vs/reviews", "-n", "shop"), 0, "distributed  2/2 proxies", "accepted 2")

		after := map[string]map[string]acceptedResource{"edge": edge.mustHold(), "client": client.mustHold()}
		if v == protocol.Delta {
			// The comparison includes the time at which Envoy accepted each resource.
			if d := cmp.Diff(before, after); d != "" {
				t.Errorf("the restart changed what the proxies hold (-before +after):\n%s", d)
			}
			if sent := s.sentResources(); len(sent) > 0 {
				t.Errorf("resources were sent again: %v", sent)
			}
		} else if d := cmp.Diff(versionsOf(before), versionsOf(after)); d != "" {
			t.Errorf("the restart changed versions (-before +after):\n%s", d)
		}
		s.awaitSynced(s.apply(x.routes(0, 100)), "edge", "client")
		awaitOnly(t, loads, "v2")
		for _, l := range loads {
			l.expectUnharmed()
		}
		s.expectNothingRejected()
		edge.expectNothingRejected()
		client.expectNothingRejected()
	})
}

// versionsOf returns the versions of the resources of proxies.
func versionsOf(all map[string]map[string]acceptedResource) []string {
	var out []string
	for proxy, resources := range all {
		for name, h := range resources {
			out = append(out, proxy+" "+name+" "+h.Version)
		}
	}
	return slices.Sorted(slices.Values(out))
}

// TestEnvoyServerKilledBetweenClusterAndEndpoints disconnects a server after it has sent a
// changed cluster and before the endpoints. After the reconnect no cluster may stay warming.
func TestEnvoyServerKilledBetweenClusterAndEndpoints(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, x := startServer(t, serverOptions{}), newShop(t)
		s.apply(x.all(50, 50))
		relay := startRelay(t, s.xds)
		edge := s.startEnvoy(envoyOptions{kind: "router", name: "edge", labels: "app=edge", variant: v, xds: relay.address})
		awaitReply(t, x.atGateway("/"), send(t, x.atGateway("/")).String())
		l := startLoad(t, "gateway", x.atGateway("/"))

		relay.arm()
		s.apply(fill(tunedRule, "$host", shopHost))
		eventually(t, "a cluster waits for its endpoints", func() error {
			warming, err := edge.warming()
			if err == nil && len(warming) == 0 {
				err = fmt.Errorf("none does")
			}
			return err
		})
		s.kill()
		l.sample(50)
		if relay.disarm() == 0 {
			t.Error("no endpoints were held back: the scenario did not happen")
		}
		s.start()
		s.awaitSynced(s.revision(), "edge")
		edge.awaitWarm()
		edge.awaitConfig(`"connect_timeout": "3.500s"`)
		l.sample(50)
		s.awaitSynced(s.apply(x.routes(0, 100)), "edge")
		s.awaitSynced(s.apply(x.entry(x.v2)), "edge")
		awaitOnly(t, []*load{l}, "v2")
		l.expectUnharmed()
		s.expectNothingRejected()
		edge.expectNothingRejected()
	})
}

// TestEnvoyIsBackSoon disconnects a proxy that has everything, again and again. It receives
// nothing after a reconnect, so Envoy takes each attempt for a failed one. Still, the pauses
// between attempts must not grow to Envoy's default of 30 seconds.
func TestEnvoyIsBackSoon(t *testing.T) {
	t.Parallel()
	s, x := startServer(t, serverOptions{}), newShop(t)
	s.apply(x.all(50, 50))
	relay := startRelay(t, s.xds)
	edge := s.startEnvoy(envoyOptions{kind: "router", name: "edge", labels: "app=edge", variant: protocol.Delta, xds: relay.address})
	s.awaitSynced(s.revision(), "edge")
	longest := time.Duration(0)
	for range 11 {
		met := relay.streamCount()
		relay.cutStreams()
		relay.admitStreams()
		began := time.Now()
		eventually(t, "the proxy is back", func() error {
			if relay.streamCount() == met {
				return errors.New("it is not")
			}
			return nil
		})
		longest = max(longest, time.Since(began))
		s.awaitSynced(s.revision(), "edge")
	}
	if t.Logf("longest pause: %s", longest); late(longest, 15*time.Second) {
		t.Errorf("the proxy was away for %s: its pauses grow beyond what the bootstrap says", longest)
	}
	edge.expectNothingRejected()
}

// TestEnvoyStoreKilled kills the store process. The server and the proxies continue to serve,
// and changes succeed as soon as the store is back.
func TestEnvoyStoreKilled(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, x := startServer(t, serverOptions{}), newShop(t)
		s.apply(x.all(50, 50))
		edge, client := s.startPair(v)
		awaitReply(t, x.atGateway("/"), send(t, x.atGateway("/")).String())
		loads := []*load{startLoad(t, "gateway", x.atGateway("/")), startLoad(t, "sidecar", x.atSidecar("/"))}
		before := s.responses()
		for range 3 {
			if err := syscall.Kill(storeOf(t, s.o.dataDir), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			out := s.must("", "proxy", "status")
			if !strings.Contains(out, "edge") {
				t.Errorf("the status without a store:\n%s", out)
			}
			eventually(t, "the store takes the change", func() error {
				if out := s.try(x.routes(50, 50), "apply", "-f", "-"); out.code != 0 {
					return errors.New(out.stderr)
				}
				return nil
			})
		}
		expectEqual(t, "responses for a store that came back as it was", less(s.responses(), before), map[string]int{})
		s.awaitSynced(s.apply(x.routes(0, 100)), "edge", "client")
		awaitOnly(t, loads, "v2")
		for _, l := range loads {
			l.expectUnharmed()
		}
		s.expectNothingRejected()
		edge.expectNothingRejected()
		client.expectNothingRejected()
	})
}

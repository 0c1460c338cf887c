package integration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// TestEnvoyRouteFlipsUnderLoad alternates between two batches while requests run through a
// gateway and a sidecar. One adds a subset to the rule and moves the routes to it; the other
// moves both back. So a cluster comes with the first route to it, and goes with the last. Some
// batches come before the Envoys acknowledged the previous one.
func TestEnvoyRouteFlipsUnderLoad(t *testing.T) {
	t.Parallel()
	for _, m := range []struct {
		name       string
		variant    protocol.Variant
		routeDelta string
	}{
		{"delta", protocol.Delta, "auto"},
		{"delta with whole routes", protocol.Delta, "off"},
		{"world", protocol.StateOfTheWorld, "auto"},
	} {
		t.Run(m.name, func(t *testing.T) {
			s, x := startServer(t, serverOptions{args: []string{"--route-delta", m.routeDelta}}), newShop(t)
			s.apply(x.all(100, 0))
			edge, client := s.startPair(m.variant)
			awaitReply(t, x.atGateway("/"), "v1")
			awaitReply(t, x.atSidecar("/"), "v1")
			loads := []*load{startLoad(t, "gateway", x.atGateway("/")), startLoad(t, "sidecar", x.atSidecar("/"))}
			for i := range 50 {
				flipped := s.apply(x.flip(fmt.Sprintf("f%d", i)))
				if i%2 == 0 {
					s.awaitSynced(flipped, "edge", "client")
				}
				s.awaitSynced(s.apply(x.rule()+"\n---\n"+x.routes(100, 0)), "edge", "client")
			}
			for _, e := range []*envoy{edge, client} {
				e.awaitCluster(fmt.Sprintf("outbound|%d|f48|%s", x.service, shopHost), false)
				e.expectNothingRejected()
			}
			for _, l := range loads {
				l.expectUnharmed()
			}
			s.expectNothingRejected()
		})
	}
}

// flip routes all requests to a subset that the rule has in addition to its own.
func (s *shop) flip(subset string) string {
	rule := strings.TrimRight(s.rule(), "\n") + fmt.Sprintf("\n  - {name: %s, labels: {version: v2}}\n", subset)
	return rule + "\n---\n" + strings.ReplaceAll(s.routes(100, 0), "subset: v1", "subset: "+subset)
}

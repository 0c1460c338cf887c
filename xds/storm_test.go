package xds_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/portolan-mesh/portolan/storage/longtest"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestAStormStarvesNobody: while objects change thousands of times, endpoints that
// change meanwhile arrive. The server sends fewer responses than there are changes, and
// holds at most twice as many resources as before. Afterwards the proxies have the last
// form of everything, and the server holds as much as before.
func TestAStormStarvesNobody(t *testing.T) {
	t.Parallel()
	const services, updates = 20, 5
	storm := longtest.Histories(2_000, 10_000)
	s := xdstest.NewServer(t, catalogue.Types())
	var all strings.Builder
	for i := range services {
		all.WriteString("---\n" + service(fmt.Sprintf("s%d", i), 9080, "10.1.0.1") + "---\n" + route(fmt.Sprintf("s%d", i), "s0"))
	}
	s.Apply(all.String())
	clients := []*xdstest.Client{dial(t, s, protocol.Delta, nil), dial(t, s, protocol.StateOfTheWorld, nil)}
	for _, c := range clients {
		c.Await("all services", func(held func(string) map[string]xdstest.Held) bool {
			return len(held(xdstest.EndpointType)) == services && len(held(xdstest.RouteType)) == 1
		})
	}
	settled(t, s, s.Apply(service("s1", 9080, "10.2.0.0"))) // nothing is under way
	before := s.XDS.Built()

	var running sync.WaitGroup
	var arrived atomic.Bool // the endpoints have arrived, so the storm may end
	var changes, most int
	sent := len(clients[0].Answers(xdstest.RouteType))
	running.Go(func() {
		for ; changes < storm || !arrived.Load(); changes++ {
			if t.Failed() {
				return
			}
			s.Apply(route(fmt.Sprintf("s%d", changes%services), fmt.Sprintf("s%d", changes/services%services)))
			if changes%50 == 0 {
				most = max(most, s.XDS.Built())
			}
		}
	})
	t.Cleanup(running.Wait)
	for i := 1; i <= updates; i++ {
		address := fmt.Sprintf("10.2.0.%d", i)
		s.Apply(service("s1", 9080, address))
		for _, c := range clients {
			c.Await("endpoint "+address, func(held func(string) map[string]xdstest.Held) bool {
				h, ok := held(xdstest.EndpointType)["outbound|9080||s1.shop.example"]
				return ok && strings.Contains(string(h.Body.GetValue()), address)
			})
		}
	}
	arrived.Store(true)
	running.Wait()
	if most > 2*before {
		t.Errorf("%d resources were held at a time, %d before", most, before)
	}
	sent = len(clients[0].Answers(xdstest.RouteType)) - sent
	t.Logf("%d changes, %d responses with routes, at most %d resources", changes, sent, most)
	if sent > changes*9/10 {
		t.Errorf("%d responses with routes of %d changes", sent, changes)
	}
	// The same world as before the storm, one endpoint apart.
	revision := s.Apply(all.String())
	settled(t, s, max(revision, s.Apply(service("s1", 9080, "10.2.0.0"))))
	xdstest.Eventually(t, "what was built for the storm to be given up", func() bool { return s.XDS.Built() == before })
}

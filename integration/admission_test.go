package integration

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/portolan-mesh/portolan/integration/processtest"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// crowd has idle streams of proxies that request clusters: as many as the server brings up at
// one time, and as may wait.
type crowd struct {
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// gather connects a crowd of n to a server.
func gather(t *testing.T, s *server, n int) *crowd {
	t.Helper()
	connection, err := grpc.NewClient(s.xds, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := &crowd{cancel: cancel}
	client := discoveryv3.NewAggregatedDiscoveryServiceClient(connection)
	for i := range n {
		c.running.Go(func() {
			ads, err := client.DeltaAggregatedResources(ctx)
			if err != nil {
				return
			}
			_ = ads.Send(&discoveryv3.DeltaDiscoveryRequest{
				TypeUrl: xdstest.ClusterType, Node: xdstest.NewNode("sidecar", fmt.Sprintf("10.9.0.%d", i+1), fmt.Sprintf("crowd-%d", i), "shop", nil),
			})
			<-ctx.Done()
		})
	}
	c.running.Go(func() { <-ctx.Done(); _ = connection.Close() })
	return c
}

// disperse ends the streams.
func (c *crowd) disperse() {
	c.cancel()
	c.running.Wait()
}

// TestEnvoyIsRefused: an Envoy loses its server, reconnects when no more proxies may wait, and
// is refused. It continues to serve, reconnects by itself, and receives changes.
func TestEnvoyIsRefused(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, x := startServer(t, serverOptions{args: []string{"--max-first-syncs", "1", "--max-streams-per-connection", "200"}}), newShop(t)
		s.apply(x.all(100, 0))
		link := processtest.NewLink(t, s.xds, nil)
		edge := s.startEnvoy(envoyOptions{kind: "router", name: "edge", labels: "app=edge", variant: v, xds: link.Address()})
		awaitReply(t, x.atGateway("/"), "v1")
		l := startLoad(t, "gateway", x.atGateway("/"))
		for try := 0; !refusedAmong(t, s, link); try++ {
			if try == 5 {
				t.Fatal("the Envoy was not refused while others waited")
			}
		}
		expectShare(t, "the gateway after it was refused", l.sample(50), "v1", 100)
		s.awaitSynced(s.apply(x.routes(0, 100)), "edge")
		awaitOnly(t, []*load{l}, "v2")
		l.expectUnharmed()
		edge.expectNothingRejected()
	})
}

// refusedAmong reconnects the Envoy behind a link among a crowd, and reports whether it was
// refused. It may get in, since those who wait get their turns in time.
func refusedAmong(t *testing.T, s *server, link *processtest.Link) bool {
	t.Helper()
	const turns, room = 1, 100
	link.Cut()
	c := gather(t, s, turns+room)
	defer func() { c.disperse(); link.Mend() }()
	eventually(t, "a crowd waits", func() error {
		if n := s.gauge("portolan_waiting_proxies"); n < room {
			return fmt.Errorf("%v wait", n)
		}
		return nil
	})
	before := s.gauge("portolan_refused_proxies_total")
	link.Mend()
	deadline := time.Now().Add(8 * time.Second)
	refused := false
	eventually(t, "the Envoy is refused, or it takes too long", func() error {
		refused = s.gauge("portolan_refused_proxies_total") > before
		if !refused && time.Now().Before(deadline) {
			return errors.New("it is not")
		}
		return nil
	})
	return refused
}

package xds_test

import (
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/portolan-mesh/portolan/xds"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestFirstSyncsAreRationed: while all slots of the first sync are taken, the next proxy
// waits. It is served as soon as one of the others has completed its first sync, or has
// gone.
func TestFirstSyncsAreRationed(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(first *xdstest.Client){
		"it has taken all": func(first *xdstest.Client) {
			first.Ack(first.AwaitAnswer(xdstest.ClusterType, 0))
			first.Subscribe(xdstest.ListenerType)
			first.Ack(first.AwaitAnswer(xdstest.ListenerType, 0))
		},
		"it has gone": (*xdstest.Client).Close,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			variants(t, func(t *testing.T, v protocol.Variant) {
				s := crowded(t, 10, time.Hour)
				first := xdstest.Dial(t, s.Address, xdstest.ClientOptions{Node: node("10.0.0.1"), Variant: v, Manual: true})
				first.Subscribe(xdstest.ClusterType)
				first.AwaitAnswer(xdstest.ClusterType, 0)
				second := xdstest.Dial(t, s.Address, xdstest.ClientOptions{Node: node("10.0.0.2"), Variant: v})
				second.Subscribe(xdstest.ClusterType)
				xdstest.Eventually(t, "the second stream", func() bool { return s.XDS.Connections() == 2 })
				if n := len(second.Answers(xdstest.ClusterType)); n > 0 || connected(s, "10.0.0.2") {
					t.Fatal("the second proxy is served while the first takes its turn")
				}
				end(first)
				second.AwaitAnswer(xdstest.ClusterType, 0)
			})
		})
	}
}

// TestACrowdIsTurnedAway: a stream for which there is no room to wait is told to
// try again.
func TestACrowdIsTurnedAway(t *testing.T) {
	t.Parallel()
	variants(t, func(t *testing.T, v protocol.Variant) {
		s := crowded(t, -1, time.Hour)
		first := xdstest.Dial(t, s.Address, xdstest.ClientOptions{Node: node("10.0.0.1"), Variant: v, Manual: true})
		first.Subscribe(xdstest.ClusterType)
		first.AwaitAnswer(xdstest.ClusterType, 0)
		second := xdstest.Dial(t, s.Address, xdstest.ClientOptions{Node: node("10.0.0.2"), Variant: v})
		second.Subscribe(xdstest.ClusterType)
		if err := second.AwaitEnd(); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "try again") {
			t.Errorf("the stream ended with %v", err)
		}
	})
}

// TestASilentProxyHoldsUpNobody: a proxy loses its slot if it sends nothing, or nothing
// more while it owes no answer.
func TestASilentProxyHoldsUpNobody(t *testing.T) {
	t.Parallel()
	for name, say := range map[string]func(*xdstest.Client){
		"nothing": func(*xdstest.Client) {},
		"nothing more": func(c *xdstest.Client) {
			c.Subscribe(xdstest.ClusterType)
			c.Ack(c.AwaitAnswer(xdstest.ClusterType, 0))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			variants(t, func(t *testing.T, v protocol.Variant) {
				s := crowded(t, 10, 50*time.Millisecond)
				silent := xdstest.Dial(t, s.Address, xdstest.ClientOptions{Node: node("10.0.0.1"), Variant: v, Manual: true})
				xdstest.Eventually(t, "the first stream", func() bool { return s.XDS.Connections() == 1 })
				say(silent)
				next := xdstest.Dial(t, s.Address, xdstest.ClientOptions{Node: node("10.0.0.2"), Variant: v})
				next.Subscribe(xdstest.ClusterType)
				next.AwaitAnswer(xdstest.ClusterType, 0)
				silent.Subscribe(xdstest.EndpointType, "unknown")
				silent.AwaitAnswer(xdstest.EndpointType, 0) // it is served still
			})
		})
	}
}

// crowded makes a server with one slot for first syncs. It lets room proxies wait, and
// takes the slot from a proxy that is silent for a time.
func crowded(t *testing.T, room int, silence time.Duration) *xdstest.Server {
	t.Helper()
	s := xdstest.NewServer(t, catalogue.Types(), func(o *xds.Options) {
		o.MaxFirstSyncs, o.MaxWaiting, o.SyncSilence, o.SyncLimit = 1, room, silence, time.Hour
	})
	revision := s.Apply(service("reviews", 9080, "10.1.0.1"))
	xdstest.Eventually(t, "all to be published", func() bool { return s.XDS.Context().Revision() >= revision })
	return s
}

// TestWhoWaitsIsNotRead: the server does not read the request of a proxy that waits for a
// slot, such as the versions of all that it has.
func TestWhoWaitsIsNotRead(t *testing.T) {
	t.Parallel()
	s := crowded(t, 10, time.Hour)
	first := xdstest.Dial(t, s.Address, xdstest.ClientOptions{Node: node("10.0.0.1"), Manual: true})
	first.Subscribe(xdstest.ClusterType)
	first.AwaitAnswer(xdstest.ClusterType, 0)

	connection, err := grpc.NewClient(s.Address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connection.Close() }()
	second, err := discoveryv3.NewAggregatedDiscoveryServiceClient(connection).DeltaAggregatedResources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	outcome := make(chan error, 1)
	go func() {
		err := second.Send(&discoveryv3.DeltaDiscoveryRequest{
			Node: node("10.0.0.2"), TypeUrl: xdstest.ClusterType,
			InitialResourceVersions: map[string]string{"none": strings.Repeat("x", 4<<20)},
		})
		if err == nil { // it can send no more while the windows are full
			err = second.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: xdstest.ListenerType})
		}
		outcome <- err
	}()
	xdstest.Eventually(t, "the second stream", func() bool { return s.XDS.Connections() == 2 })
	select {
	case err := <-outcome:
		t.Fatalf("a proxy that waits is read: %v", err)
	case <-time.After(200 * time.Millisecond): // it would be read in less, most often
	}
	first.Close()
	if err := <-outcome; err != nil {
		t.Errorf("it is not read when it has its turn: %v", err)
	}
}

package xds_test

import (
	"context"
	"fmt"
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

// services makes n services, so that responses are larger than what transports buffer.
func services(n int) string {
	var out strings.Builder
	for i := range n {
		out.WriteString("---\n" + service(fmt.Sprintf("s%d", i), 9080, "10.1.0.1"))
	}
	return out.String()
}

// deaf opens a delta stream that asks for clusters and listeners and never
// reads.
func deaf(t *testing.T, s *xdstest.Server, ip string) {
	t.Helper()
	connection, err := grpc.NewClient(s.Address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	ads, err := discoveryv3.NewAggregatedDiscoveryServiceClient(connection).DeltaAggregatedResources(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for i, typeURL := range []string{xdstest.ClusterType, xdstest.ListenerType, xdstest.EndpointType} {
		q := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeURL}
		if i == 0 {
			q.Node = node(ip)
		}
		if typeURL == xdstest.EndpointType {
			q.ResourceNamesSubscribe = []string{"unknown"}
		}
		if err := ads.Send(q); err != nil {
			t.Fatal(err)
		}
	}
}

// connected says whether the proxy at an address has a stream.
func connected(s *xdstest.Server, ip string) bool {
	for _, p := range s.XDS.Proxies() {
		if p.Node == node(ip).GetId() {
			return true
		}
	}
	return false
}

// TestAClientThatNeverReadsHoldsUpNobody: others do not wait for its blocked response, nor
// for the changes after that, even if only one connection may build at a time.
func TestAClientThatNeverReadsHoldsUpNobody(t *testing.T) {
	t.Parallel()
	s := xdstest.NewServer(t, catalogue.Types(), func(o *xds.Options) { o.MaxPushes = 1 })
	s.Apply(services(600))
	c := dial(t, s, protocol.Delta, nil)
	c.Await("all endpoints", func(held func(string) map[string]xdstest.Held) bool {
		return len(held(xdstest.EndpointType)) == 600
	})
	deaf(t, s, "10.0.0.9")
	xdstest.Eventually(t, "the deaf client to connect", func() bool { return connected(s, "10.0.0.9") })
	for i := range 5 {
		n := len(c.Answers(xdstest.EndpointType))
		s.Apply(service("s7", 9080, fmt.Sprintf("10.2.0.%d", i+1)))
		c.AwaitAnswer(xdstest.EndpointType, n)
	}
}

// TestAClientThatNeverReadsIsClosed in bounded time.
func TestAClientThatNeverReadsIsClosed(t *testing.T) {
	t.Parallel()
	s := xdstest.NewServer(t, catalogue.Types(), func(o *xds.Options) { o.StallTimeout = 200 * time.Millisecond })
	s.Apply(services(600))
	deaf(t, s, "10.0.0.9")
	xdstest.Eventually(t, "the deaf client to connect", func() bool { return connected(s, "10.0.0.9") })
	xdstest.Eventually(t, "its stream to be closed", func() bool { return !connected(s, "10.0.0.9") })
}

// TestAClientThatNeverAnswersIsClosed in bounded time, and told why; one that
// answers stays.
func TestAClientThatNeverAnswersIsClosed(t *testing.T) {
	t.Parallel()
	variants(t, func(t *testing.T, v protocol.Variant) {
		s := xdstest.NewServer(t, catalogue.Types(), func(o *xds.Options) { o.StallTimeout = 200 * time.Millisecond })
		s.Apply(service("reviews", 9080, "10.1.0.1"))
		good := dial(t, s, v, nil)
		good.AwaitAnswer(xdstest.ClusterType, 0)
		mute := xdstest.Dial(t, s.Address, xdstest.ClientOptions{Node: node("10.0.0.9"), Variant: v, Manual: true})
		mute.Subscribe(xdstest.ClusterType)
		if err := mute.AwaitEnd(); status.Code(err) != codes.Unavailable {
			t.Errorf("the stream ended with %v", err)
		}
		n := len(good.Answers(xdstest.EndpointType))
		s.Apply(service("reviews", 9080, "10.1.0.2"))
		good.AwaitAnswer(xdstest.EndpointType, n)
	})
}

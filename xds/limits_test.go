package xds_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/status"

	"github.com/portolan-mesh/portolan/xds"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/progress"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// observed returns how many observations a histogram has.
func observed(t *testing.T, registry *prometheus.Registry, name string) uint64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetHistogram().GetSampleCount()
		}
	}
	return 0
}

// TestOnlyTheFirstAnswerTimesARevision: a proxy that requests again what it has, such as an
// hour later, does not count as a slow apply.
func TestOnlyTheFirstAnswerTimesARevision(t *testing.T) {
	t.Parallel()
	const metric, name = "portolan_apply_to_ack_seconds", "outbound|9080||a.shop.example"
	registry := prometheus.NewRegistry()
	s := xdstest.NewServer(t, catalogue.Types(), func(o *xds.Options) { o.Registerer = registry })
	c := xdstest.Dial(t, s.Address, xdstest.ClientOptions{Node: node("10.0.0.1"), Variant: protocol.Delta})
	c.Subscribe(xdstest.ClusterType)
	c.Subscribe(xdstest.EndpointType, name)
	c.AwaitAnswer(xdstest.EndpointType, 0)
	settled(t, s, s.Apply(service("a", 9080, "10.1.0.1")))
	before := observed(t, registry, metric)
	if before == 0 {
		t.Error("the apply was not timed")
	}
	n := len(c.Answers(xdstest.EndpointType))
	c.Subscribe(xdstest.EndpointType, name)
	c.AwaitAnswer(xdstest.EndpointType, n)
	settled(t, s, s.Apply(service("a", 9080, "10.1.0.2"))) // the answer has been taken
	if after := observed(t, registry, metric); after != before+1 {
		t.Errorf("timed %d times, want once", after-before)
	}
}

// TestTypesOfAStreamAreBounded: a client cannot make the server keep ever more.
func TestTypesOfAStreamAreBounded(t *testing.T) {
	t.Parallel()
	variants(t, func(t *testing.T, v protocol.Variant) {
		s := xdstest.NewServer(t, catalogue.Types())
		c := xdstest.Dial(t, s.Address, xdstest.ClientOptions{Node: node("10.0.0.1"), Variant: v})
		for i := range 1000 {
			c.Subscribe(fmt.Sprintf("type.googleapis.com/unknown.v%d", i), "x")
		}
		if err := c.AwaitEnd(); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "types") {
			t.Errorf("the stream ended with %v", err)
		}
		c = xdstest.Dial(t, s.Address, xdstest.ClientOptions{Node: node("10.0.0.1"), Variant: v})
		c.Subscribe("", "x")
		if err := c.AwaitEnd(); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "type_url") {
			t.Errorf("the stream ended with %v", err)
		}
	})
}

// TestCompressedRequestsAreRefused, with the reason: what they grow to would have to be bounded, too.
func TestCompressedRequestsAreRefused(t *testing.T) {
	t.Parallel()
	s := xdstest.NewServer(t, catalogue.Types())
	connection, err := grpc.NewClient(s.Address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.UseCompressor(gzip.Name)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connection.Close() }()
	ads, err := discoveryv3.NewAggregatedDiscoveryServiceClient(connection).DeltaAggregatedResources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := ads.Send(&discoveryv3.DeltaDiscoveryRequest{Node: node("10.0.0.1"), TypeUrl: xdstest.ClusterType}); err != nil {
		t.Fatal(err)
	}
	if _, err := ads.Recv(); status.Code(err) != codes.Unimplemented || !strings.Contains(err.Error(), "compressed") {
		t.Errorf("the stream ended with %v", err)
	}
}

// TestProxiesAreInOrder: by node, and the streams of one node by age.
func TestProxiesAreInOrder(t *testing.T) {
	t.Parallel()
	s := xdstest.NewServer(t, catalogue.Types())
	for i := range 9 {
		c := xdstest.Dial(t, s.Address, xdstest.ClientOptions{Node: node("10.0.0.1"), Variant: protocol.Delta})
		c.Subscribe(xdstest.ClusterType)
		c.AwaitAnswer(xdstest.ClusterType, 0)
		xdstest.Eventually(t, "the stream", func() bool { return len(s.XDS.Proxies()) == i+1 })
	}
	if !slices.IsSortedFunc(s.XDS.Proxies(), func(a, b progress.ProxyStatus) int { return a.ConnectedSince.Compare(b.ConnectedSince) }) {
		t.Error("out of order")
	}
}

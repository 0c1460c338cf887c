package xds_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	routeservice "github.com/envoyproxy/go-control-plane/envoy/service/route/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/portolan-mesh/portolan/storage/status"
	"github.com/portolan-mesh/portolan/xds"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// published waits until the server serves a revision to new streams.
func published(t *testing.T, s *xdstest.Server, revision int64) {
	t.Helper()
	xdstest.Eventually(t, "the revision to be published", func() bool { return s.XDS.Context().Revision() >= revision })
}

// TestAWarmingClusterGetsItsEndpoints: a proxy need not acknowledge clusters
// before the new ones are warm, and these are warm once it has their endpoints.
// So endpoints go out also while that acknowledgement is awaited; routes that lead
// to these clusters wait for it.
func TestAWarmingClusterGetsItsEndpoints(t *testing.T) {
	t.Parallel()
	variants(t, func(t *testing.T, v protocol.Variant) {
		s := xdstest.NewServer(t, catalogue.Types())
		published(t, s, s.Apply(service("a", 9080, "10.1.0.1")))
		c := xdstest.Dial(t, s.Address, xdstest.ClientOptions{Node: node("10.0.0.1"), Variant: v, Manual: true})
		c.Subscribe(xdstest.ClusterType)
		c.Ack(c.AwaitAnswer(xdstest.ClusterType, 0))
		c.Subscribe(xdstest.EndpointType, "outbound|9080||a.shop.example")
		c.Ack(c.AwaitAnswer(xdstest.EndpointType, 0))
		c.Subscribe(xdstest.RouteType, "9080")
		c.Ack(c.AwaitAnswer(xdstest.RouteType, 0))

		s.Apply(service("a", 9080, "10.1.0.2"), service("b", 9080, "10.1.0.3"), route("a", "b"))
		warming := c.AwaitAnswer(xdstest.ClusterType, 1)
		c.Ack(c.AwaitAnswer(xdstest.EndpointType, 1))
		c.Subscribe(xdstest.EndpointType, "outbound|9080||b.shop.example")
		c.Ack(c.AwaitAnswer(xdstest.EndpointType, 2))
		c.Subscribe(xdstest.EndpointType, "unknown") // answered after the acknowledgement was taken
		c.Ack(c.AwaitAnswer(xdstest.EndpointType, 3))
		if n := len(c.Answers(xdstest.RouteType)); n != 1 {
			t.Errorf("%d answers of routes before the cluster they lead to", n)
		}
		c.Ack(warming)
		c.AwaitAnswer(xdstest.RouteType, 1)
		var order []string
		for _, a := range c.Answers("") {
			order = append(order, a.TypeURL)
		}
		want := []string{
			xdstest.ClusterType, xdstest.EndpointType, xdstest.RouteType,
			xdstest.ClusterType, xdstest.EndpointType, xdstest.EndpointType, xdstest.EndpointType, xdstest.RouteType,
		}
		if !slices.Equal(order, want) {
			t.Errorf("answers of %q", order)
		}
	})
}

// TestAnUnknownTypeIsAnsweredAtOnce also while clusters wait.
func TestAnUnknownTypeIsAnsweredAtOnce(t *testing.T) {
	t.Parallel()
	variants(t, func(t *testing.T, v protocol.Variant) {
		const secrets = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"
		s := xdstest.NewServer(t, catalogue.Types())
		c := xdstest.Dial(t, s.Address, xdstest.ClientOptions{Node: node("10.0.0.1"), Variant: v, Manual: true})
		c.Subscribe(xdstest.ClusterType)
		c.AwaitAnswer(xdstest.ClusterType, 0)
		c.Subscribe(xdstest.EndpointType, "outbound|9080||a.shop.example")
		c.Ack(c.AwaitAnswer(xdstest.EndpointType, 0))
		s.Apply(service("a", 9080, "10.1.0.1"))
		c.AwaitAnswer(xdstest.EndpointType, 1) // the clusters wait now
		c.Subscribe(secrets, "default")
		c.AwaitAnswer(secrets, 0)
	})
}

const gateway = `apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: edge, namespace: shop}
spec: {selector: {app: gw}, servers: [{port: {number: 8080, name: http, protocol: HTTP}, hosts: ["*"]}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: edge, namespace: shop}
spec: {hosts: ["*"], gateways: [edge], http: [{route: [{destination: {host: a.shop.example}}]}]}
`

// TestADeletedParentTakesItsChildrenAlong: a draining listener keeps its routes, and a
// cluster its endpoints. The server empties neither before the proxy gives it up.
func TestADeletedParentTakesItsChildrenAlong(t *testing.T) {
	t.Parallel()
	variants(t, func(t *testing.T, v protocol.Variant) {
		s := xdstest.NewServer(t, catalogue.Types())
		c := xdstest.Dial(t, s.Address, xdstest.ClientOptions{
			Node: xdstest.NewNode("router", "10.0.0.1", "gw", "shop", map[string]string{"app": "gw"}), Variant: v, Follow: true,
		})
		c.Subscribe(xdstest.ClusterType)
		c.Subscribe(xdstest.ListenerType)
		settled(t, s, s.Apply(service("a", 9080, "10.1.0.1"), gateway))
		before := len(c.Answers(""))
		settled(t, s, s.Delete(service("a", 9080, "10.1.0.1"), gateway))
		var order []string
		for _, a := range c.Answers("")[before:] {
			order = append(order, a.TypeURL)
		}
		if !slices.Equal(order, []string{xdstest.ListenerType, xdstest.ClusterType}) {
			t.Errorf("answers of %q", order)
		}
		for _, typeURL := range []string{xdstest.EndpointType, xdstest.RouteType} {
			if held := c.Held(typeURL); len(held) > 0 {
				t.Errorf("left of %s: %v", typeURL, held)
			}
		}
	})
}

// TestAClusterThatResolvesByItselfKeepsItsEndpointsMeanwhile: while the new form
// of the cluster warms, the old one serves.
func TestAClusterThatResolvesByItselfKeepsItsEndpointsMeanwhile(t *testing.T) {
	t.Parallel()
	variants(t, func(t *testing.T, v protocol.Variant) {
		const name = "outbound|9080||a.shop.example"
		s := xdstest.NewServer(t, catalogue.Types())
		revision := s.Apply(service("a", 9080, "10.1.0.1"))
		c := xdstest.Dial(t, s.Address, xdstest.ClientOptions{Node: node("10.0.0.1"), Variant: v})
		c.Subscribe(xdstest.ClusterType)
		c.Subscribe(xdstest.EndpointType, name)
		settled(t, s, revision)
		before := len(c.Answers(xdstest.EndpointType))
		settled(t, s, s.Apply(strings.Replace(service("a", 9080, "one.example"), "STATIC", "DNS", 1)))
		if n := len(c.Answers(xdstest.EndpointType)); n != before {
			t.Errorf("%d answers of endpoints", n-before)
		}
	})
}

// TestWhatRefusedRoutesLeadToIsKept: a proxy that rejects new routes goes on with the old
// ones. So the server keeps the deleted cluster that these lead to.
func TestWhatRefusedRoutesLeadToIsKept(t *testing.T) {
	t.Parallel()
	variants(t, func(t *testing.T, v protocol.Variant) {
		const name = "outbound|9080||b.shop.example"
		s := xdstest.NewServer(t, catalogue.Types(), func(o *xds.Options) { o.ReadyLimit = 50 * time.Millisecond })
		revision := s.Apply(service("a", 9080, "10.1.0.1"), service("b", 9080, "10.1.0.2"), route("a", "b"))
		published(t, s, revision)
		c := xdstest.Dial(t, s.Address, xdstest.ClientOptions{Node: node("10.0.0.1"), Variant: v, Manual: true})
		c.Subscribe(xdstest.ClusterType)
		c.Ack(c.AwaitAnswer(xdstest.ClusterType, 0))
		c.Subscribe(xdstest.RouteType, "9080")
		c.Ack(c.AwaitAnswer(xdstest.RouteType, 0))
		settled(t, s, revision)
		s.Batch(append(xdstest.Ops(t, route("a", "a")), xdstest.Removals(t, service("b", 9080, "10.1.0.2"))...))
		c.Nack(c.AwaitAnswer(xdstest.RouteType, 1), "no")
		c.Subscribe(xdstest.EndpointType, "unknown") // answered after the rejection was taken
		c.Ack(c.AwaitAnswer(xdstest.EndpointType, 0))
		c.Subscribe(xdstest.EndpointType, "unknown too")
		c.AwaitAnswer(xdstest.EndpointType, 1)
		if n := len(c.Answers(xdstest.ClusterType)); n != 1 {
			t.Errorf("%d answers of clusters", n)
		}
		c.Ack(c.Answers(xdstest.EndpointType)[1])
		// The kept cluster does not stop the proxy from having taken another change.
		other := s.Apply(strings.ReplaceAll(pooled, "reviews", "a"))
		c.Ack(c.AwaitAnswer(xdstest.ClusterType, 1))
		judged(t, s, other, status.Count{Accepted: 1})
		s.Apply(route("a", "unknown"))
		c.Ack(c.AwaitAnswer(xdstest.RouteType, 2))
		gone := c.AwaitAnswer(xdstest.ClusterType, 2)
		if _, still := gone.Resources[name]; still || (v == protocol.Delta && !slices.Contains(gone.Removed, name)) {
			t.Errorf("%v, removed %v", gone.Names(), gone.Removed)
		}
	})
}

// TestVirtualHostsOnAStreamOfTheirOwn: the client requests their route configurations on
// another stream.
func TestVirtualHostsOnAStreamOfTheirOwn(t *testing.T) {
	t.Parallel()
	s := xdstest.NewServer(t, catalogue.Types())
	published(t, s, s.Apply(service("a", 9080, "10.1.0.1")))
	connection, err := grpc.NewClient(s.Address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	hosts, err := routeservice.NewVirtualHostDiscoveryServiceClient(connection).DeltaVirtualHosts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const name = "9080/a.shop.example:9080"
	if err := hosts.Send(&discoveryv3.DeltaDiscoveryRequest{Node: node("10.0.0.1"), ResourceNamesSubscribe: []string{name}}); err != nil {
		t.Fatal(err)
	}
	answer, err := hosts.Recv()
	if err != nil || len(answer.GetResources()) != 1 || answer.GetResources()[0].GetName() != name {
		t.Errorf("%v, %v", answer, err)
	}
}

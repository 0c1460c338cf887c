package xds_test

import (
	"strings"
	"testing"
	"time"

	clusterservice "github.com/envoyproxy/go-control-plane/envoy/service/cluster/v3"
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

// TestWhoAsksForClustersAloneIsToldOfRemovals: the server does not hold a removal back for
// types that the client never requests, also if the client had the cluster on an earlier
// stream.
func TestWhoAsksForClustersAloneIsToldOfRemovals(t *testing.T) {
	t.Parallel()
	variants(t, func(t *testing.T, v protocol.Variant) {
		s := xdstest.NewServer(t, catalogue.Types(), func(o *xds.Options) { o.WithdrawLimit = time.Hour })
		reviews, ratings := service("reviews", 9080, "10.1.0.1"), service("ratings", 9080, "10.1.0.2")
		published(t, s, s.Apply(reviews, ratings))
		has := func(c *xdstest.Client, what string, names ...string) {
			t.Helper()
			c.Await(what, func(held func(string) map[string]xdstest.Held) bool {
				var services []string
				for name := range held(xdstest.ClusterType) {
					if _, host, ok := strings.Cut(name, "||"); ok && strings.HasPrefix(name, "outbound|") {
						services = append(services, strings.TrimSuffix(host, ".shop.example"))
					}
				}
				return sameSet(services, names)
			})
		}
		o := xdstest.ClientOptions{Node: node("10.0.0.1"), Variant: v}
		first := xdstest.Dial(t, s.Address, o)
		first.Subscribe(xdstest.ClusterType)
		has(first, "both services", "ratings", "reviews")
		s.Delete(ratings)
		has(first, "one of them", "reviews")
		s.Apply(ratings)
		has(first, "both again", "ratings", "reviews")
		first.Close()
		<-first.Done()
		published(t, s, s.Delete(ratings))
		o.Resume = first
		has(xdstest.Dial(t, s.Address, o), "one of them, on another stream", "reviews")
	})
}

// sameSet says whether two lists have the same elements, in any order.
func sameSet(a, b []string) bool {
	in := map[string]bool{}
	for _, s := range a {
		in[s] = true
	}
	for _, s := range b {
		if !in[s] {
			return false
		}
	}
	return len(a) == len(b)
}

// TestOtherClientsAreToldOfRemovals: clients other than Envoy get removals of endpoints and
// routes, too. An Envoy would ignore those, so it gets empty resources.
func TestOtherClientsAreToldOfRemovals(t *testing.T) {
	t.Parallel()
	s := xdstest.NewServer(t, catalogue.Types())
	published(t, s, s.Apply(service("reviews", 9080, "10.1.0.1")))
	for name, removed := range map[string]bool{"": false, "envoy": false, "prober": true} {
		n := node("10.0.0.1")
		n.UserAgentName = name
		c := xdstest.Dial(t, s.Address, xdstest.ClientOptions{Node: n, Variant: protocol.Delta})
		for _, typeURL := range []string{xdstest.EndpointType, xdstest.RouteType} {
			c.Subscribe(typeURL, "unknown")
			a := c.AwaitAnswer(typeURL, 0)
			if _, empty := a.Resources["unknown"]; empty == removed || len(a.Removed) > 0 != removed {
				t.Errorf("%q is answered %v and removed %v", name, a.Names(), a.Removed)
			}
		}
		c.Close()
	}
}

// TestAnEnvoyWithoutADSIsRefused, and the error says what to do.
func TestAnEnvoyWithoutADSIsRefused(t *testing.T) {
	t.Parallel()
	s := xdstest.NewServer(t, catalogue.Types())
	connection, err := grpc.NewClient(s.Address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	g, err := clusterservice.NewClusterDiscoveryServiceClient(connection).DeltaClusters(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Send(&discoveryv3.DeltaDiscoveryRequest{Node: agent("envoy", 1, 40), TypeUrl: xdstest.ClusterType}); err != nil {
		t.Fatal(err)
	}
	if _, err = g.Recv(); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "ads_config") {
		t.Errorf("an Envoy asks for clusters alone: %v", err)
	}
}

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
	"github.com/portolan-mesh/portolan/xds/delivery/protocoltest"
	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestAStreamOfOneTypeIsOfNoOther: it refuses requests for other types. Its service does
// not implement Fetch.
func TestAStreamOfOneTypeIsOfNoOther(t *testing.T) {
	t.Parallel()
	s := xdstest.NewServer(t, catalogue.Types())
	connection, err := grpc.NewClient(s.Address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	clusters := clusterservice.NewClusterDiscoveryServiceClient(connection)

	g, err := clusters.DeltaClusters(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Send(&discoveryv3.DeltaDiscoveryRequest{Node: node("10.0.0.1"), TypeUrl: xdstest.ListenerType}); err != nil {
		t.Fatal(err)
	}
	_, err = g.Recv()
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), xdstest.ListenerType) {
		t.Errorf("listeners on a stream of clusters: %v", err)
	}
	if _, err := clusters.FetchClusters(t.Context(), &discoveryv3.DiscoveryRequest{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("fetching: %v", err)
	}
}

// TestAStreamOfOneTypeWaitsForNoOther: the server does not know which resources of other
// types the client has, and sends without waiting for them.
func TestAStreamOfOneTypeWaitsForNoOther(t *testing.T) {
	t.Parallel()
	s := xdstest.NewServer(t, catalogue.Types(), func(o *xds.Options) { o.ReadyLimit, o.WithdrawLimit = time.Hour, time.Hour })
	revision := max(s.Apply(service("reviews", 9080, "10.1.0.1")), s.Apply(route("reviews", "reviews")))
	xdstest.Eventually(t, "the service is published", func() bool { return s.XDS.Context().Revision() >= revision })
	server := &plainServer{tb: t, server: s}
	for _, v := range []protocol.Variant{protocol.Delta, protocol.StateOfTheWorld} {
		listeners := server.Connect(v, xdstest.ListenerType)
		listeners.Send(xdstest.ListenerType, protocol.Request{})
		r := listeners.Receive()
		if len(r.Resources) == 0 {
			t.Errorf("%s: no listeners", v)
		}
		listeners.Send(xdstest.ListenerType, protocol.Request{Nonce: r.Nonce, Version: r.Version})
		routes := server.Connect(v, xdstest.RouteType)
		names := []string{"9080"}
		routes.Send(xdstest.RouteType, protocol.Request{Names: protocoltest.NameSet(names...), Subscribe: protocoltest.NameSet(names...)})
		r = routes.Receive()
		if len(r.Resources) != 1 {
			t.Fatalf("%s: %d route configurations", v, len(r.Resources))
		}
		routes.Send(xdstest.RouteType, protocol.Request{Names: protocoltest.NameSet(names...), Nonce: r.Nonce, Version: r.Version})
		s.Apply(service("ratings"+v.String()[:5], 9080, "10.1.0.2"))
		if r = routes.Receive(); len(r.Resources) != 1 {
			t.Errorf("%s: a new service makes %d route configurations", v, len(r.Resources))
		}
	}
}

package xds_test

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/portolan-mesh/portolan/xds"
	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// metered is a listener whose connections count how often they are written to.
type metered struct {
	net.Listener
	writes *atomic.Int64
}

func (l metered) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return meteredConn{c, l.writes}, err
}

type meteredConn struct {
	net.Conn
	writes *atomic.Int64
}

func (c meteredConn) Write(b []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(b)
}

// TestAChangeIsOneWrite: the server writes the response, and nothing for its
// acknowledgement.
func TestAChangeIsOneWrite(t *testing.T) {
	t.Parallel()
	s := xdstest.NewServer(t, catalogue.Types())
	s.Apply(service("reviews", 9080, "10.1.0.1"))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var writes atomic.Int64
	g := grpc.NewServer(xds.ServerOptions()...)
	s.XDS.Register(g)
	served := make(chan error, 1)
	go func() { served <- g.Serve(metered{listener, &writes}) }()
	t.Cleanup(func() {
		g.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	// The client does not measure the link either: its pings would be answered.
	connection, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithStaticStreamWindowSize(1<<20), grpc.WithStaticConnWindowSize(1<<20))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	ads, err := discoveryv3.NewAggregatedDiscoveryServiceClient(connection).DeltaAggregatedResources(ctx)
	if err != nil {
		t.Fatal(err)
	}
	send := func(q *discoveryv3.DeltaDiscoveryRequest) {
		t.Helper()
		q.TypeUrl = xdstest.EndpointType
		if err := ads.Send(q); err != nil {
			t.Fatal(err)
		}
	}
	receive := func() *discoveryv3.DeltaDiscoveryResponse {
		t.Helper()
		r, err := ads.Recv()
		if err != nil {
			t.Fatal(err)
		}
		send(&discoveryv3.DeltaDiscoveryRequest{ResponseNonce: r.GetNonce()})
		return r
	}
	send(&discoveryv3.DeltaDiscoveryRequest{Node: node("10.0.0.1"), ResourceNamesSubscribe: []string{"outbound|9080||reviews.shop.example"}})
	for len(receive().GetResources()) == 0 { // it may not be published yet
	}
	// An acknowledgement has been read once the next response comes.
	s.Apply(service("reviews", 9080, "10.1.1.0"))
	receive()
	const changes = 20
	before := writes.Load()
	for i := range changes {
		s.Apply(service("reviews", 9080, fmt.Sprintf("10.1.2.%d", i+1)))
		if r := receive(); len(r.GetResources()) != 1 {
			t.Fatalf("a change is %v", r)
		}
	}
	if n := writes.Load() - before; n > changes+1 {
		t.Errorf("%d changes are %d writes", changes, n)
	}
}

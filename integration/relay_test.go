package integration

import (
	"net"
	"sync"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// relay stands between a proxy and its server and passes on what they say. Once
// it is armed, it lets the next clusters pass and no endpoints after them.
type relay struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	address string
	client  discoveryv3.AggregatedDiscoveryServiceClient
	running sync.WaitGroup // the server, and the ways up, which end with their streams

	mu       sync.Mutex
	armed    bool
	dropping bool
	dropped  int
}

// startRelay runs a relay to a server at target until the test ends.
func startRelay(t testing.TB, target string) *relay {
	t.Helper()
	connection, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{address: l.Addr().String(), client: discoveryv3.NewAggregatedDiscoveryServiceClient(connection)}
	server := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(server, r)
	r.running.Go(func() { _ = server.Serve(l) })
	t.Cleanup(func() {
		server.Stop()
		_ = connection.Close()
		r.running.Wait()
	})
	return r
}

// arm has the relay hold back endpoints from the next clusters on.
func (r *relay) arm() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.armed = true
}

// disarm has it pass everything again; what it dropped is lost.
func (r *relay) disarm() (dropped int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.armed, r.dropping = false, false
	return r.dropped
}

// passes says whether a response of a type goes through.
func (r *relay) passes(typeURL string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case typeURL == xdstest.ClusterType && r.armed:
		r.dropping = true
	case typeURL == xdstest.EndpointType && r.dropping:
		r.dropped++
		return false
	}
	return true
}

// StreamAggregatedResources implements ADS in state of the world.
func (r *relay) StreamAggregatedResources(down discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	up, err := r.client.StreamAggregatedResources(down.Context())
	if err != nil {
		return err
	}
	r.running.Go(func() { _ = pump(down.Recv, up.Send, nil, up.CloseSend) })
	return pump(up.Recv, down.Send, func(m *discoveryv3.DiscoveryResponse) bool { return r.passes(m.GetTypeUrl()) }, nil)
}

// DeltaAggregatedResources implements ADS in delta.
func (r *relay) DeltaAggregatedResources(down discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	up, err := r.client.DeltaAggregatedResources(down.Context())
	if err != nil {
		return err
	}
	r.running.Go(func() { _ = pump(down.Recv, up.Send, nil, up.CloseSend) })
	return pump(up.Recv, down.Send, func(m *discoveryv3.DeltaDiscoveryResponse) bool { return r.passes(m.GetTypeUrl()) }, nil)
}

// pump passes messages on until one side ends.
func pump[M any](receive func() (M, error), send func(M) error, passes func(M) bool, end func() error) error {
	for {
		m, err := receive()
		if err != nil {
			if end != nil {
				_ = end()
			}
			return err
		}
		if passes != nil && !passes(m) {
			continue
		}
		if err := send(m); err != nil {
			return err
		}
	}
}

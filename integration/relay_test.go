package integration

import (
	"context"
	"net"
	"slices"
	"sync"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// relay sits between a proxy and its server, forwards their messages, and records those in
// delta. Once armed, it forwards the next CDS response and drops EDS responses after it. It can
// also disconnect the proxy.
type relay struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	address string
	client  discoveryv3.AggregatedDiscoveryServiceClient
	running sync.WaitGroup // the server, and the goroutines that forward requests, which end with their streams

	mu       sync.Mutex
	armed    bool
	dropping bool
	dropped  int
	spoil    map[string]func(proto.Message) // by type URL
	said     []message
	shut     bool
	joined   int // number of delta streams so far
	streams  map[*context.CancelFunc]struct{}
}

// message is one message of a side, in delta.
type message struct {
	request        bool
	unprompted     bool // a request that is no ACK or NACK
	typeURL        string
	names, removed []string // subscribed and unsubscribed, or sent and removed
	stated         int      // resources that a first request says the proxy has
	refused        string   // why
	bytes          int
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
	r := &relay{address: l.Addr().String(), streams: map[*context.CancelFunc]struct{}{}, client: discoveryv3.NewAggregatedDiscoveryServiceClient(connection)}
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

// arm makes the relay drop endpoints from the next clusters on.
func (r *relay) arm() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.armed = true
}

// disarm makes it forward everything again. It returns how much was dropped, which is lost.
func (r *relay) disarm() (dropped int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.armed, r.dropping = false, false
	return r.dropped
}

// passes reports whether a response of a type is forwarded.
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

// spoilWith changes resources of a type on their way, in state of the world. nil stops that.
func (r *relay) spoilWith(typeURL string, spoil func(proto.Message)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.spoil = map[string]func(proto.Message){typeURL: spoil}
}

// spoils changes the resources in a response. It reports whether that worked.
func (r *relay) spoils(m *discoveryv3.DiscoveryResponse) bool {
	r.mu.Lock()
	spoil := r.spoil[m.GetTypeUrl()]
	r.mu.Unlock()
	if spoil == nil {
		return true
	}
	for _, body := range m.GetResources() {
		resource, err := body.UnmarshalNew()
		if err != nil {
			return false
		}
		spoil(resource)
		if err := body.MarshalFrom(resource); err != nil {
			return false
		}
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
	return pump(up.Recv, down.Send, func(m *discoveryv3.DiscoveryResponse) bool {
		return r.passes(m.GetTypeUrl()) && r.spoils(m)
	}, nil)
}

// DeltaAggregatedResources implements ADS in delta.
func (r *relay) DeltaAggregatedResources(down discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	ctx, end, err := r.join(down.Context())
	if err != nil {
		return err
	}
	defer end()
	up, err := r.client.DeltaAggregatedResources(ctx)
	if err != nil {
		return err
	}
	r.running.Go(func() { _ = pump(down.Recv, up.Send, r.recordRequest, up.CloseSend) })
	return pump(up.Recv, down.Send, func(m *discoveryv3.DeltaDiscoveryResponse) bool {
		r.answered(m)
		return r.passes(m.GetTypeUrl())
	}, nil)
}

// join admits a stream, unless the relay is shut.
func (r *relay) join(parent context.Context) (ctx context.Context, end func(), err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.shut {
		return nil, nil, status.Error(codes.Unavailable, "the relay is shut")
	}
	ctx, cancel := context.WithCancel(parent)
	r.streams[&cancel] = struct{}{}
	r.joined++
	return ctx, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.streams, &cancel)
		cancel()
	}, nil
}

// cutStreams ends all delta streams, and admits none until admitStreams.
func (r *relay) cutStreams() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.shut = true
	for cancel := range r.streams {
		(*cancel)()
	}
}

// streamCount returns the number of delta streams so far.
func (r *relay) streamCount() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.joined
}

// admitStreams admits streams again after cutStreams.
func (r *relay) admitStreams() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.shut = false
}

// recordRequest records a request.
func (r *relay) recordRequest(m *discoveryv3.DeltaDiscoveryRequest) bool {
	r.note(message{
		request: true, unprompted: m.GetResponseNonce() == "", typeURL: m.GetTypeUrl(), names: m.GetResourceNamesSubscribe(), removed: m.GetResourceNamesUnsubscribe(),
		stated: len(m.GetInitialResourceVersions()), refused: m.GetErrorDetail().GetMessage(), bytes: proto.Size(m),
	})
	return true
}

// answered records a response.
func (r *relay) answered(m *discoveryv3.DeltaDiscoveryResponse) {
	s := message{typeURL: m.GetTypeUrl(), removed: m.GetRemovedResources(), bytes: proto.Size(m)}
	for _, resource := range m.GetResources() {
		s.names = append(s.names, resource.GetName())
	}
	r.note(s)
}

func (r *relay) note(s message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.said = append(r.said, s)
}

// since returns the messages after the first n.
func (r *relay) since(n int) []message {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.said[n:])
}

// pump forwards messages until one side ends.
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

// Package floor is a server of ADS that does nothing but send: responses that another server
// made, encoded once, the same bytes to every client. No server with the same gRPC can be
// faster on the machine. So its figures are the floor that a control plane is compared with.
package floor

import (
	"context"
	"crypto/tls"
	"maps"
	"net"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/portolan-mesh/portolan/integration/load/raw"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// Recording has the responses of a server to one client, each type in order.
type Recording struct {
	Variant protocol.Variant
	// Responses are the responses of a first sync, by type URL.
	Responses map[string][][]byte
	// Changes are the responses of each change, by its name.
	Changes map[string][][]byte
}

// Server sends a Recording to every client. The first request for a type on a stream makes it
// send the responses of the type. It ignores all other requests.
type Server struct {
	typeField protowire.Number
	responses map[string][]*raw.Frame
	changes   map[string][]*raw.Frame

	mu      sync.Mutex // guards clients
	clients map[*client]struct{}
}

// New makes a server of a recording.
func New(r Recording) *Server {
	s := &Server{typeField: 2, responses: frames(r.Responses), changes: frames(r.Changes), clients: map[*client]struct{}{}}
	if r.Variant == protocol.StateOfTheWorld {
		s.typeField = 4
	}
	return s
}

func frames(of map[string][][]byte) map[string][]*raw.Frame {
	out := map[string][]*raw.Frame{}
	for name, responses := range of {
		for _, response := range responses {
			out[name] = append(out[name], &raw.Frame{Bytes: response})
		}
	}
	return out
}

// Serve listens until ctx ends. It uses TLS if over is not nil.
func (s *Server) Serve(ctx context.Context, l net.Listener, over *tls.Config) error {
	options := []grpc.ServerOption{grpc.ForceServerCodecV2(raw.Codec{}), grpc.MaxRecvMsgSize(1 << 30)}
	if over != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(over)))
	}
	g := grpc.NewServer(options...)
	handler := func(_ any, stream grpc.ServerStream) error { return s.follow(stream) }
	g.RegisterService(&grpc.ServiceDesc{
		ServiceName: "envoy.service.discovery.v3.AggregatedDiscoveryService", HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{
			{StreamName: "StreamAggregatedResources", Handler: handler, ServerStreams: true, ClientStreams: true},
			{StreamName: "DeltaAggregatedResources", Handler: handler, ServerStreams: true, ClientStreams: true},
		},
	}, s)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		<-ctx.Done()
		g.Stop()
	}()
	err := g.Serve(l)
	if ctx.Err() != nil {
		<-stopped
		return nil
	}
	return err
}

// Push sends the responses of a change to all connected clients.
func (s *Server) Push(change string) {
	s.mu.Lock()
	clients := slices.Collect(maps.Keys(s.clients))
	s.mu.Unlock()
	for _, c := range clients {
		for _, f := range s.changes[change] {
			c.push(f)
		}
	}
}

// client is one stream.
type client struct {
	stream grpc.ServerStream
	queue  chan *raw.Frame
}

// queued is how many responses may wait for one client.
const queued = 64

func (c *client) push(f *raw.Frame) {
	select {
	case c.queue <- f:
	case <-c.stream.Context().Done():
	}
}

// follow serves one stream. A goroutine of its own reads requests; gRPC ends it with the
// stream.
func (s *Server) follow(stream grpc.ServerStream) error {
	c := &client{stream, make(chan *raw.Frame, queued)}
	s.mu.Lock()
	s.clients[c] = struct{}{}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.clients, c)
	}()
	ended := make(chan struct{})
	go func() { defer close(ended); s.queueResponses(c) }()
	for {
		select {
		case <-ended:
			return nil
		case f := <-c.queue:
			if err := stream.SendMsg(f); err != nil {
				return err
			}
		}
	}
}

// queueResponses queues responses to requests until the stream ends.
func (s *Server) queueResponses(c *client) {
	asked := map[string]bool{}
	for {
		var request raw.Frame
		if err := c.stream.RecvMsg(&request); err != nil {
			return
		}
		typeURL := string(raw.Field(request.Bytes, s.typeField))
		request.Free()
		if asked[typeURL] {
			continue
		}
		asked[typeURL] = true
		for _, response := range s.responses[typeURL] {
			c.push(response)
		}
	}
}

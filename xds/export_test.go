package xds

import (
	"context"
	"encoding/binary"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/delivery"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/delivery/protocoltest"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// SetContext makes a context the one that was published last.
func (s *DiscoveryServer) SetContext(to *mesh.PushContext) { s.context.Store(to) }

// Inputs are what the server committed last.
func (s *DiscoveryServer) Inputs() mesh.Inputs { return s.committed.Load().inputs }

// ReportAllocations returns how many allocations updateNote makes for a connection in which
// nothing has changed since its last call.
func (s *DiscoveryServer) ReportAllocations(proxy *discovery.Proxy) float64 {
	c := s.newConnection(nil, &wire{variant: protocol.Delta}, nil)
	c.proxy = proxy
	c.sequencer = c.newSequencer()
	for typeURL, subscription := range c.sequencer.Subscriptions() {
		subscription.Request(protocol.Request{})
		subscription.Next(protocoltest.Everything())
		c.typeState(typeURL).SentAt = time.Now()
	}
	c.updateNote()
	return testing.AllocsPerRun(10, c.updateNote)
}

// Built is how many built resources the server holds.
func (s *DiscoveryServer) Built() int { return s.desired.Built() }

// TestConnection is a connection in delta whose client is the test: nothing happens
// but in its calls, and no goroutine works for it.
type TestConnection struct {
	c      *Connection
	client *client
}

// client is the stream of a client that takes everything. says is the next request that it
// sends.
type client struct {
	grpc.ServerStream
	says []byte
}

func (*client) SendMsg(any) error { return nil }

// ReadMessageHeader implements transport.
func (c *client) ReadMessageHeader(head []byte) error {
	head[0] = 0
	binary.BigEndian.PutUint32(head[1:], uint32(len(c.says)))
	return nil
}

// Read implements transport.
func (c *client) Read(n int) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(c.says[:n])}, nil
}

// Connect makes the connection of a proxy that requests all resources, and acknowledges
// them. The server serves the context at, and need not run.
func (s *DiscoveryServer) Connect(tb testing.TB, at *mesh.PushContext, node *corev3.Node) TestConnection {
	tb.Helper()
	s.context.Store(at)
	ctx, cancel := context.WithCancelCause(tb.Context())
	admitted, err := s.Gate.Open(ctx, cancel)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(admitted.Release)
	c := TestConnection{client: &client{}}
	c.c = s.newConnection(admitted, &wire{variant: protocol.Delta, from: c.client, stream: c.client}, cancel)
	for _, t := range s.options.Types {
		request := protocol.Request{}
		var names []string
		for _, needing := range generate.Needing(s.options.Types, t.Generator.TypeURL()) {
			for r := range subscriptionOf(c.c.sequencer, needing).DesiredSet().Values() {
				for n := range r.EachNeed {
					if n.TypeURL == t.Generator.TypeURL() && n.Requests() && n.Kind != resource.Within {
						names = append(names, n.Name)
					}
				}
			}
		}
		request.Subscribe = s.names.Of(names)
		c.take(tb, &message{node: node, typeURL: t.Generator.TypeURL(), request: request})
	}
	c.Acknowledge(tb)
	tb.Cleanup(func() { c.c.end(nil) })
	return c
}

// Open adds the connection to the open ones of its server.
func (c TestConnection) Open() {
	s := c.c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	s.connections[c.c] = struct{}{}
}

func (c TestConnection) take(tb testing.TB, m *message) {
	if err := c.c.turn(tb.Context(), m); err != nil {
		tb.Fatal(err)
	}
}

// Push brings the connection to a context, and returns how many responses that takes.
func (c TestConnection) Push(tb testing.TB, to *mesh.PushContext) (responses int) {
	tb.Helper()
	c.c.server.context.Store(to)
	c.c.dirty.Store(true)
	c.take(tb, nil)
	return c.Acknowledge(tb)
}

// acknowledge makes the client send the ACK of a response.
func (c TestConnection) acknowledge(tb testing.TB, typeURL, nonce string) {
	const typeURLField, nonceField = 2, 6 // of a request in delta
	says := protowire.AppendTag(c.client.says[:0], typeURLField, protowire.BytesType)
	says = protowire.AppendString(says, typeURL)
	says = protowire.AppendTag(says, nonceField, protowire.BytesType)
	c.client.says = protowire.AppendString(says, nonce)
	if err := c.c.wire.begin(); err != nil {
		tb.Fatal(err)
	}
	m, err := c.c.wire.receive()
	if err != nil {
		tb.Fatal(err)
	}
	c.take(tb, m)
}

// CheckNotes compares the note of the client with the status of its subscriptions.
func (c TestConnection) CheckNotes(tb testing.TB) {
	tb.Helper()
	noted, _ := c.c.note.Read()
	for i, t := range noted.Types {
		if is := subscriptionOf(c.c.sequencer, c.c.types[i].url).Status(); t.Status != is {
			tb.Errorf("%s: noted %+v, is %+v", t.Name, t.Status, is)
		}
	}
	c.take(tb, nil) // the types become idle again
}

// Acknowledge acknowledges responses until none is in flight, and returns how many there
// were.
func (c TestConnection) Acknowledge(tb testing.TB) (responses int) {
	tb.Helper()
	for again := true; again; {
		again = false
		for _, t := range c.c.types {
			if t.subscription.InFlight() {
				c.acknowledge(tb, t.url, t.subscription.Status().Sent.Nonce)
				again, responses = true, responses+1
			}
		}
	}
	return responses
}

func subscriptionOf(s *delivery.Sequencer, typeURL string) *protocol.Subscription {
	for url, subscription := range s.Subscriptions() {
		if url == typeURL {
			return subscription
		}
	}
	return nil
}

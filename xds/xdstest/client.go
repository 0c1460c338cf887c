package xdstest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secretservice "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/names/nds"
)

// The types that a proxy requests.
const (
	ClusterType  = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	EndpointType = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
	ListenerType = "type.googleapis.com/envoy.config.listener.v3.Listener"
	RouteType    = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
	// VirtualHostType is for clients that use VHDS.
	VirtualHostType = "type.googleapis.com/envoy.config.route.v3.VirtualHost"
)

// maxResponse is the largest message that a client accepts, in bytes.
const maxResponse = 256 << 20

// ClientOptions describe a Client and how it behaves.
type ClientOptions struct {
	// Node is sent with the first request; NewNode makes one.
	Node    *corev3.Node
	Variant protocol.Variant
	// Credentials secure the connection; nil connects without TLS.
	Credentials credentials.TransportCredentials
	// Secrets opens a stream of the secret discovery service (SDS), instead of ADS.
	Secrets bool
	// Manual leaves it to the test to answer with Ack and Nack. Otherwise the client
	// acknowledges each response itself.
	Manual bool
	// Follow makes the client subscribe, as Envoy does, to the endpoints of its clusters and
	// the routes of its listeners.
	Follow bool
	// Initial are the versions that a delta client sends with the first request for a type
	// (initial_resource_versions): what it has from an earlier stream.
	Initial map[string]map[string]string
	// Refuse returns the message with which the client rejects an answer as a whole. If it is
	// empty, the client accepts the answer. Refuse must not call the client. A Manual client
	// does not call it.
	Refuse func(*Answer) string
	// OnAnswer is called with every answer after the client holds its resources and before it
	// acknowledges. It must not call the client.
	OnAnswer func(*Answer)
	// Resume is an earlier, closed client of the same options. The new one is the same proxy
	// after a reconnect: it holds the same, states the versions, and requests the same.
	Resume *Client
}

// Held is a resource that a Client has.
type Held struct {
	// Version is the version of the resource in delta, and empty in state of the world.
	Version string
	Body    *anypb.Any
}

// Answer is one response of the server.
type Answer struct {
	TypeURL string
	Nonce   string
	// Version is version_info; in delta it is system_version_info.
	Version   string
	Resources map[string]Held
	// Removed are the names that a delta response removes.
	Removed []string
}

// Names returns the names of the answer's resources, in order.
func (a *Answer) Names() []string { return slices.Sorted(maps.Keys(a.Resources)) }

// Client is an ADS client of either variant. It records all responses, and holds what a proxy
// would hold. Its methods may be called by several goroutines. It ends with the test.
type Client struct {
	tb   testing.TB
	o    ClientOptions
	wire clientWire
	// close ends the stream and waits for it. It may be called repeatedly.
	close func()
	done  chan struct{} // closed when the stream has ended

	mu      sync.Mutex // guards the fields below
	changed chan struct{}
	err     error
	answers []*Answer
	types   map[string]*clientType
	named   bool // whether the node was sent
}

// clientType has what a client holds and requests of a type.
type clientType struct {
	held       map[string]Held
	subscribed map[string]bool
	wildcard   bool
	version    string // the last acknowledged version
	nonce      string // of the last response
}

// clientRequest is a request of either variant.
type clientRequest struct {
	node                   *corev3.Node
	typeURL                string
	names                  []string // state of the world
	subscribe, unsubscribe []string // delta
	initial                map[string]string
	version, nonce         string
	rejection              *statuspb.Status
}

// clientWire speaks one of the variants. send and receive may run at the same time, but only
// one goroutine may send.
type clientWire interface {
	send(clientRequest) error
	receive() (*Answer, error)
}

// Dial opens a stream to a server at host:port, or at a gRPC target.
func Dial(tb testing.TB, target string, o ClientOptions) *Client {
	tb.Helper()
	c, err := Open(tb, target, o)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// Open is like Dial, but returns an error if it gets no stream, as from a server that is down.
func Open(tb testing.TB, target string, o ClientOptions) (*Client, error) {
	tb.Helper()
	if o.Credentials == nil {
		o.Credentials = insecure.NewCredentials()
	}
	connection, err := grpc.NewClient(target, grpc.WithTransportCredentials(o.Credentials),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxResponse)))
	if err != nil {
		return nil, fmt.Errorf("xDS client: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	wire, err := openWire(ctx, connection, o)
	if err != nil {
		cancel()
		_ = connection.Close()
		return nil, fmt.Errorf("xDS client: %w", err)
	}
	c := &Client{
		tb: tb, o: o, wire: wire,
		done: make(chan struct{}), changed: make(chan struct{}), types: map[string]*clientType{},
	}
	var running sync.WaitGroup
	running.Go(c.run)
	c.close = sync.OnceFunc(func() {
		cancel()
		_ = connection.Close()
		running.Wait()
	})
	tb.Cleanup(c.close)
	if o.Resume != nil {
		c.resume(o.Resume)
	}
	return c, nil
}

// Done is closed when the stream has ended.
func (c *Client) Done() <-chan struct{} { return c.done }

// Close ends the stream.
func (c *Client) Close() { c.close() }

func openWire(ctx context.Context, connection *grpc.ClientConn, o ClientOptions) (clientWire, error) {
	secrets := secretservice.NewSecretDiscoveryServiceClient(connection)
	switch {
	case o.Secrets && o.Variant == protocol.Delta:
		s, err := secrets.DeltaSecrets(ctx)
		return deltaClient{s}, err
	case o.Secrets:
		s, err := secrets.StreamSecrets(ctx)
		return worldClient{s}, err
	}
	ads := discoveryv3.NewAggregatedDiscoveryServiceClient(connection)
	if o.Variant == protocol.Delta {
		s, err := ads.DeltaAggregatedResources(ctx)
		return deltaClient{s}, err
	}
	s, err := ads.StreamAggregatedResources(ctx)
	return worldClient{s}, err
}

// Subscribe subscribes to names of a type, or without names to the whole type.
func (c *Client) Subscribe(typeURL string, names ...string) {
	c.tb.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.subscribe(typeURL, names, nil)
}

// Unsubscribe unsubscribes from names of a type.
func (c *Client) Unsubscribe(typeURL string, names ...string) {
	c.tb.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.subscribe(typeURL, nil, names)
}

// Ack acknowledges an answer of a Manual client.
func (c *Client) Ack(a *Answer) {
	c.tb.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.acknowledge(a)
}

// Nack rejects an answer of a Manual client.
func (c *Client) Nack(a *Answer, message string) {
	c.tb.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refuse(a, message)
}

func (c *Client) refuse(a *Answer, message string) {
	t := c.typ(a.TypeURL)
	c.send(clientRequest{
		typeURL: a.TypeURL, names: t.names(), version: t.version, nonce: a.Nonce,
		rejection: &statuspb.Status{Code: int32(codes.InvalidArgument), Message: message},
	})
}

// Held returns what the client has of a type. The caller owns the map.
func (c *Client) Held(typeURL string) map[string]Held {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.typ(typeURL).held)
}

// Answers returns the responses of a type so far, in the order of arrival. An empty type means
// all types.
func (c *Client) Answers(typeURL string) []*Answer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.answersOf(typeURL)
}

func (c *Client) answersOf(typeURL string) []*Answer {
	var out []*Answer
	for _, a := range c.answers {
		if typeURL == "" || a.TypeURL == typeURL {
			out = append(out, a)
		}
	}
	return out
}

// Await waits until a condition holds, and checks it after every answer. what describes it in
// the failure. The condition must not call the client; held returns what the client holds of a
// type.
func (c *Client) Await(what string, condition func(held func(typeURL string) map[string]Held) bool) {
	c.tb.Helper()
	c.await(what, func() bool {
		return condition(func(typeURL string) map[string]Held { return c.typ(typeURL).held })
	})
}

// AwaitAnswer waits for the answer of a type with an index, which counts from 0.
func (c *Client) AwaitAnswer(typeURL string, index int) *Answer {
	c.tb.Helper()
	var out *Answer
	c.await(fmt.Sprintf("answer %d of %s", index, typeURL), func() bool {
		answers := c.answersOf(typeURL)
		if len(answers) <= index {
			return false
		}
		out = answers[index]
		return true
	})
	return out
}

// AwaitEnd waits until the stream ends and returns its error.
func (c *Client) AwaitEnd() error {
	c.tb.Helper()
	deadline := time.After(awaitLimit)
	for {
		c.mu.Lock()
		err, changed := c.err, c.changed
		c.mu.Unlock()
		if err != nil {
			return err
		}
		select {
		case <-changed:
		case <-deadline:
			c.tb.Fatal("the stream does not end")
		}
	}
}

// awaitLimit is how long a test waits for a condition.
const awaitLimit = 20 * time.Second

func (c *Client) await(what string, condition func() bool) {
	c.tb.Helper()
	deadline := time.After(awaitLimit)
	for {
		c.mu.Lock()
		ok, err, changed := condition(), c.err, c.changed
		c.mu.Unlock()
		switch {
		case ok:
			return
		case err != nil:
			c.tb.Fatalf("waiting for %s: the stream ended: %v", what, err)
		}
		select {
		case <-changed:
		case <-deadline:
			c.tb.Fatalf("waiting for %s: not within %s", what, awaitLimit)
		}
	}
}

// run receives responses until the stream ends.
func (c *Client) run() {
	defer close(c.done)
	for {
		a, err := c.wire.receive()
		c.mu.Lock()
		if err != nil {
			c.err = err
		} else {
			c.take(a)
		}
		close(c.changed)
		c.changed = make(chan struct{})
		c.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (c *Client) take(a *Answer) {
	c.answers = append(c.answers, a)
	t := c.typ(a.TypeURL)
	t.nonce = a.Nonce
	if c.o.Refuse != nil && !c.o.Manual {
		if words := c.o.Refuse(a); words != "" {
			c.refuse(a, words)
			return
		}
	}
	whole := a.TypeURL == ClusterType || a.TypeURL == ListenerType || a.TypeURL == nds.TableType || a.TypeURL == nds.HostType || isKind(a.TypeURL)
	if c.o.Variant == protocol.StateOfTheWorld && whole {
		t.held = map[string]Held{}
	}
	for name, h := range a.Resources {
		if t.wildcard || t.subscribed["*"] || t.subscribed[name] { // else the client has unsubscribed meanwhile
			t.held[name] = h
		}
	}
	for _, name := range a.Removed {
		delete(t.held, name)
	}
	if c.o.OnAnswer != nil {
		c.o.OnAnswer(a)
	}
	if !c.o.Manual {
		c.acknowledge(a)
	}
	if c.o.Follow {
		c.follow(a.TypeURL, t)
	}
}

func (c *Client) acknowledge(a *Answer) {
	t := c.typ(a.TypeURL)
	t.version = a.Version
	c.send(clientRequest{typeURL: a.TypeURL, names: t.names(), version: a.Version, nonce: a.Nonce})
}

// follow subscribes to what the client's resources of a type refer to, and unsubscribes from
// what none refers to any more.
func (c *Client) follow(typeURL string, t *clientType) {
	var childType string
	wanted := map[string]bool{}
	switch typeURL {
	case ClusterType:
		childType = EndpointType
	case ListenerType:
		childType = RouteType
	default:
		return
	}
	for _, h := range t.held {
		names, err := childrenOf(h.Body)
		if err != nil {
			c.err = err
			return
		}
		for _, name := range names {
			wanted[name] = true
		}
	}
	child := c.typ(childType)
	var more, fewer []string
	for name := range wanted {
		if !child.subscribed[name] {
			more = append(more, name)
		}
	}
	for name := range child.subscribed {
		if !wanted[name] {
			fewer = append(fewer, name)
		}
	}
	if len(more)+len(fewer) > 0 {
		slices.Sort(more)
		slices.Sort(fewer)
		c.subscribe(childType, more, fewer)
	}
}

// subscribe changes the subscriptions of a type and sends the request.
func (c *Client) subscribe(typeURL string, more, fewer []string) {
	_, known := c.types[typeURL]
	t := c.typ(typeURL)
	t.wildcard = t.wildcard || len(more)+len(fewer) == 0
	for _, name := range more {
		t.subscribed[name] = true
	}
	for _, name := range fewer {
		delete(t.subscribed, name)
		delete(t.held, name)
	}
	q := clientRequest{
		typeURL: typeURL, names: t.names(), subscribe: more, unsubscribe: fewer, version: t.version, nonce: t.nonce,
	}
	if !known {
		q.initial = c.o.Initial[typeURL]
	}
	c.send(q)
}

func (c *Client) typ(typeURL string) *clientType {
	t := c.types[typeURL]
	if t == nil {
		t = &clientType{held: map[string]Held{}, subscribed: map[string]bool{}}
		c.types[typeURL] = t
	}
	return t
}

func (t *clientType) names() []string {
	if t.wildcard {
		return nil
	}
	return slices.Sorted(maps.Keys(t.subscribed))
}

// send must be called with mu held. If the stream has ended, receive returns the error.
func (c *Client) send(q clientRequest) {
	if !c.named {
		q.node, c.named = c.o.Node, true
	}
	_ = c.wire.send(q)
}

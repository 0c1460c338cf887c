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
)

// The types that a proxy asks for.
const (
	ClusterType  = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	EndpointType = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
	ListenerType = "type.googleapis.com/envoy.config.listener.v3.Listener"
	RouteType    = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
	// VirtualHostType is for clients that take routes by delta.
	VirtualHostType = "type.googleapis.com/envoy.config.route.v3.VirtualHost"
)

// maxResponse is what a client takes in one message.
const maxResponse = 256 << 20

// ClientOptions say who a Client is and how it behaves.
type ClientOptions struct {
	// Node is sent with the first request; NewNode makes one.
	Node    *corev3.Node
	Variant protocol.Variant
	// Credentials secure the connection; nil connects without TLS.
	Credentials credentials.TransportCredentials
	// Secrets opens a stream of the service of secrets, instead of the aggregated one.
	Secrets bool
	// Manual leaves every answer to Ack and Nack of the test. Otherwise a client
	// acknowledges what it receives.
	Manual bool
	// Follow makes a client ask, as Envoy does, for the endpoints of the clusters
	// and the routes of the listeners that it holds.
	Follow bool
	// Initial are the versions that a delta client states when it first asks for
	// a type: what it has from an earlier stream.
	Initial map[string]map[string]string
	// Refuse returns the message with which the client refuses an answer; it then takes
	// nothing of it. Empty takes the answer. Refuse must not call the client. A Manual
	// client does not call it.
	Refuse func(*Answer) string
	// OnAnswer is called with every answer once it is part of what the client
	// holds and before it is acknowledged. It must not call the client.
	OnAnswer func(*Answer)
	// Resume is an earlier client of the same options, closed, whose proxy
	// connects again: the new one holds what that held, states it, and asks for
	// the same.
	Resume *Client
}

// Held is a resource as a Client has it.
type Held struct {
	// Version is the version of the resource in delta, and empty in state of the world.
	Version string
	Body    *anypb.Any
}

// Answer is one response of the server as it came.
type Answer struct {
	TypeURL string
	Nonce   string
	// Version is version_info, and system_version_info in delta.
	Version   string
	Resources map[string]Held
	// Removed are the names that a delta response takes away.
	Removed []string
}

// Names returns the names of the answer's resources, in order.
func (a *Answer) Names() []string { return slices.Sorted(maps.Keys(a.Resources)) }

// Client is a client of ADS, in either variant, that records what it is sent
// and holds what a proxy would hold. Its methods may be called by several
// goroutines. It ends with the test.
type Client struct {
	tb   testing.TB
	o    ClientOptions
	wire clientWire
	// close ends the stream and waits for it; it may be called again.
	close func()
	done  chan struct{} // closed when the stream has ended

	mu      sync.Mutex // guards what follows
	changed chan struct{}
	err     error
	answers []*Answer
	types   map[string]*clientType
	named   bool // the node was sent
}

// clientType is what a client holds and asked for of a type.
type clientType struct {
	held       map[string]Held
	subscribed map[string]bool
	wildcard   bool
	version    string // the last that was acknowledged
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

// clientWire speaks one of the variants. send and receive may be called at the
// same time, but send by one goroutine only.
type clientWire interface {
	send(clientRequest) error
	receive() (*Answer, error)
}

// Dial opens a stream to a server at host:port, or at what gRPC calls a target.
func Dial(tb testing.TB, target string, o ClientOptions) *Client {
	tb.Helper()
	c, err := Open(tb, target, o)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// Open is Dial for a server that may be away: the error says why there is no
// stream.
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

// Subscribe asks for names of a type, or without names for all of it.
func (c *Client) Subscribe(typeURL string, names ...string) {
	c.tb.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.subscribe(typeURL, names, nil)
}

// Unsubscribe gives names of a type up.
func (c *Client) Unsubscribe(typeURL string, names ...string) {
	c.tb.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.subscribe(typeURL, nil, names)
}

// Ack takes an answer of a Manual client.
func (c *Client) Ack(a *Answer) {
	c.tb.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.acknowledge(a)
}

// Nack refuses an answer of a Manual client.
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

// Held is what the client has of a type. The map is the caller's.
func (c *Client) Held(typeURL string) map[string]Held {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.typ(typeURL).held)
}

// Answers are the responses of a type so far, or of all types where it is
// empty, in the order in which they came.
func (c *Client) Answers(typeURL string) []*Answer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.of(typeURL)
}

func (c *Client) of(typeURL string) []*Answer {
	var out []*Answer
	for _, a := range c.answers {
		if typeURL == "" || a.TypeURL == typeURL {
			out = append(out, a)
		}
	}
	return out
}

// Await waits until a condition holds, and checks it after every answer; what names it in
// the failure. The condition must not call the client: held returns what it holds of a
// type.
func (c *Client) Await(what string, condition func(held func(typeURL string) map[string]Held) bool) {
	c.tb.Helper()
	c.await(what, func() bool {
		return condition(func(typeURL string) map[string]Held { return c.typ(typeURL).held })
	})
}

// AwaitAnswer waits for the answer of a type with an index, counted from 0.
func (c *Client) AwaitAnswer(typeURL string, index int) *Answer {
	c.tb.Helper()
	var out *Answer
	c.await(fmt.Sprintf("answer %d of %s", index, typeURL), func() bool {
		answers := c.of(typeURL)
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

// awaitLimit is how long a condition may take to come true.
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

// run takes what the server sends until the stream ends.
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

// take makes an answer part of what the client holds.
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
	whole := a.TypeURL == ClusterType || a.TypeURL == ListenerType || isKind(a.TypeURL)
	if c.o.Variant == protocol.StateOfTheWorld && whole {
		t.held = map[string]Held{}
	}
	for name, h := range a.Resources {
		if t.wildcard || t.subscribed["*"] || t.subscribed[name] { // else it was given up meanwhile
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

// follow asks for the children of what the client holds of a type, and gives up
// those which nothing names any more.
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

// subscribe changes what the client asks for and says so.
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

// send is called with mu held. A stream that has ended shows in receive.
func (c *Client) send(q clientRequest) {
	if !c.named {
		q.node, c.named = c.o.Node, true
	}
	_ = c.wire.send(q)
}

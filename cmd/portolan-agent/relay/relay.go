package relay

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/portolan-mesh/portolan/discovery/node"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// Options configure a Relay. Servers is required.
type Options struct {
	Servers Servers
	// Store keeps the last good configuration; nil keeps none.
	Store *Store
	// Patience is how long a client waits for a server before it gets what is kept of it; 0 means
	// 5 s.
	Patience time.Duration
	// SaveEvery is how often at most what a client has acknowledged is kept; 0 means 2 s.
	SaveEvery time.Duration
	// Follow has those who take resources for the agent itself, by type URL. They are asked for on
	// the delta streams of the proxy with the id Node, and are kept like its own. Of types in Single,
	// each has one resource, with the name there. They are also asked for on streams in state of the
	// world with that id, those of gRPC programs. New tells the followers what is kept.
	Node   string
	Follow map[string]Follower
	Single map[string]string
	// Logger may be nil; nothing is logged then.
	Logger *slog.Logger
}

// Relay serves the aggregated discovery service.
type Relay struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	o Options

	mu       sync.Mutex
	clients  []*Client             // those that are connected
	node     string                // Options.Node, or what Rename has said
	said     statements            // the last ones
	watchers map[*watcher]struct{} // the sessions

	followers *followers
}

// statement is something that the machine says of itself. It asks for nothing and is not answered.
type statement struct {
	typeURL string
	status  *rpcstatus.Status // of its health, nil if that is good
	facts   *corev3.Node
}

// statements are the last health and the last facts, nil for none.
type statements struct{ health, facts *statement }

// with returns the statements with a newer one.
func (s statements) with(one *statement) statements {
	if one.typeURL == resource.HealthType {
		s.health = one
	} else {
		s.facts = one
	}
	return s
}

// left says that the machine has said that it leaves.
func (s statements) left() bool {
	return s.health != nil && s.health.status.GetCode() == int32(codes.Canceled)
}

// watcher is a session that passes on what the machine says of itself.
type watcher struct {
	node       string // of the client
	statements chan *statement
	done       <-chan struct{} // of the session
}

// Client is one connected client.
type Client struct {
	Node string `json:"node"`
	// Server is the server whose configuration it gets, empty while there is none. Since is since
	// when.
	Server string    `json:"server,omitempty"`
	Since  time.Time `json:"since"`
	// Refused is what it says of the last response that it has refused, until it takes one of the type.
	Refused string `json:"refused,omitempty"`

	refusedType string
}

// New returns a relay.
func New(o Options) *Relay {
	if o.Patience == 0 {
		o.Patience = 5 * time.Second
	}
	if o.SaveEvery == 0 {
		o.SaveEvery = 2 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	out := &Relay{o: o, node: o.Node, watchers: map[*watcher]struct{}{}, followers: newFollowers(o.Follow, o.Single)}
	if o.Store != nil && len(o.Follow) > 0 {
		out.followers.begin(o.Store.load(o.Node, deltaVariant), o.Store.load(o.Node, worldVariant))
	}
	return out
}

// Report has every client's server know whether the machine is healthy, and why it is not. It
// returns when all have been told, or ctx ends. Servers to which a client goes over later are told
// the last report, too. After Leave it does nothing.
func (r *Relay) Report(ctx context.Context, healthy bool, why string) {
	out := &statement{typeURL: resource.HealthType}
	if !healthy {
		out.status = &rpcstatus.Status{Code: int32(codes.Unavailable), Message: why}
	}
	r.state(ctx, out)
}

// Tell has every client's server know facts of the machine, as Report does.
func (r *Relay) Tell(ctx context.Context, facts node.Facts) {
	r.state(ctx, &statement{typeURL: resource.FactsType, facts: &corev3.Node{Metadata: facts.Metadata()}})
}

// Leave has every client's server know that the machine leaves for good, as Report does.
func (r *Relay) Leave(ctx context.Context) {
	r.state(ctx, &statement{typeURL: resource.HealthType, status: &rpcstatus.Status{Code: int32(codes.Canceled), Message: "the agent ends"}})
}

func (r *Relay) state(ctx context.Context, out *statement) {
	r.mu.Lock()
	if r.said.left() {
		r.mu.Unlock()
		return
	}
	r.said = r.said.with(out)
	all := slices.Collect(maps.Keys(r.watchers))
	r.mu.Unlock()
	tell(ctx, all, out)
}

// Rename gives the agent's own proxy another id, since the machine has another address. Its streams
// with the old one tell their servers that it leaves there for good.
func (r *Relay) Rename(ctx context.Context, node string) {
	r.mu.Lock()
	var old []*watcher
	for w := range r.watchers {
		if w.node == r.node && node != r.node {
			old = append(old, w)
		}
	}
	r.node = node
	r.mu.Unlock()
	tell(ctx, old, &statement{typeURL: resource.HealthType, status: &rpcstatus.Status{Code: int32(codes.Canceled), Message: "the machine has another address"}})
}

func tell(ctx context.Context, all []*watcher, out *statement) {
	for _, w := range all {
		select {
		case w.statements <- out:
		case <-w.done:
		case <-ctx.Done():
		}
	}
}

// watch registers a session, and returns what the machine has said last.
func (r *Relay) watch(w *watcher) (last statements, end func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watchers[w] = struct{}{}
	return r.said, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.watchers, w)
	}
}

// isOwn says whether a client is the agent's own proxy.
func (r *Relay) isOwn(node string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return node == r.node
}

// isPast says whether a client is the agent's own proxy at an address that the machine had before.
func (r *Relay) isPast(node string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return node != r.node && ofAnyAddress(node) == ofAnyAddress(r.node)
}

// ServerOptions returns the options that a gRPC server of a Relay needs: messages may be as large
// as the servers send them, and a client may ping as often as Envoy does.
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.MaxRecvMsgSize(math.MaxInt32), grpc.MaxSendMsgSize(math.MaxInt32), grpc.WaitForHandlers(true),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	}
}

// Register adds the service to a gRPC server, made with ServerOptions.
func (r *Relay) Register(g grpc.ServiceRegistrar) {
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, r)
}

// Clients returns the connected clients, by node.
func (r *Relay) Clients() []Client {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]Client, len(r.clients))
	for i, c := range r.clients {
		out[i] = *c
	}
	slices.SortStableFunc(out, func(a, b Client) int { return strings.Compare(a.Node, b.Node) })
	return out
}

func (r *Relay) join(node string) *Client {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := &Client{Node: node, Since: time.Now()}
	r.clients = append(r.clients, c)
	return c
}

func (r *Relay) leave(c *Client) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clients = slices.DeleteFunc(r.clients, func(one *Client) bool { return one == c })
}

// show notes which server a client gets its configuration of.
func (r *Relay) show(c *Client, server string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.Server != server {
		c.Server, c.Since = server, time.Now()
		r.o.Logger.Info("the proxy gets its configuration from", "proxy", c.Node, "server", server)
	}
}

// maxRefused bounds the words of a client that are kept.
const maxRefused = 2 << 10

// note notes whether a client has refused a response, or has taken one after all.
func (r *Relay) note(c *Client, q request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch why := q.GetErrorDetail(); {
	case why != nil:
		c.refusedType, c.Refused = q.GetTypeUrl(), why.GetMessage()[:min(len(why.GetMessage()), maxRefused)]
	case c.refusedType == q.GetTypeUrl() && q.GetResponseNonce() != "":
		c.refusedType, c.Refused = "", ""
	}
}

// The variants, as files of the store name them.
const deltaVariant, worldVariant = "delta", "state of the world"

// DeltaAggregatedResources implements ADS in the delta variant.
func (r *Relay) DeltaAggregatedResources(down discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	return serve(r, deltaVariant, down, down.Context(),
		func(ctx context.Context, conn *grpc.ClientConn) (stream[*discoveryv3.DeltaDiscoveryRequest, *discoveryv3.DeltaDiscoveryResponse], error) {
			return discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
		},
		func(kept map[string]*discoveryv3.DeltaDiscoveryResponse) book[*discoveryv3.DeltaDiscoveryRequest, *discoveryv3.DeltaDiscoveryResponse] {
			return newDeltaBook(kept, r.o.Follow)
		},
		func(kept map[string]*discoveryv3.DeltaDiscoveryResponse) func(*discoveryv3.DeltaDiscoveryRequest) (*discoveryv3.DeltaDiscoveryResponse, bool) {
			return (&keptDelta{kept: kept, types: map[string]*deltaType{}}).answer
		},
		func(s *statement) *discoveryv3.DeltaDiscoveryRequest {
			return &discoveryv3.DeltaDiscoveryRequest{TypeUrl: s.typeURL, ErrorDetail: s.status, Node: s.facts}
		},
		func() own[*discoveryv3.DeltaDiscoveryRequest, *discoveryv3.DeltaDiscoveryResponse] {
			return r.followers.join()
		})
}

// StreamAggregatedResources implements ADS in state of the world.
func (r *Relay) StreamAggregatedResources(down discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	return serve(r, worldVariant, down, down.Context(),
		func(ctx context.Context, conn *grpc.ClientConn) (stream[*discoveryv3.DiscoveryRequest, *discoveryv3.DiscoveryResponse], error) {
			return discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
		},
		func(kept map[string]*discoveryv3.DeltaDiscoveryResponse) book[*discoveryv3.DiscoveryRequest, *discoveryv3.DiscoveryResponse] {
			return newWorldBook(kept, r.o.Single)
		},
		func(kept map[string]*discoveryv3.DeltaDiscoveryResponse) func(*discoveryv3.DiscoveryRequest) (*discoveryv3.DiscoveryResponse, bool) {
			return (&keptWorld{kept: kept, asked: map[string][]string{}}).answer
		},
		func(s *statement) *discoveryv3.DiscoveryRequest {
			return &discoveryv3.DiscoveryRequest{TypeUrl: s.typeURL, ErrorDetail: s.status, Node: s.facts}
		},
		func() own[*discoveryv3.DiscoveryRequest, *discoveryv3.DiscoveryResponse] {
			return r.followers.joinWorld()
		})
}

// request is what requests of both variants have.
type request interface {
	GetNode() *corev3.Node
	GetTypeUrl() string
	GetResponseNonce() string
	GetErrorDetail() *rpcstatus.Status
}

// serve runs the stream of one client.
func serve[Q request, P any](r *Relay, variant string, down stream[P, Q], ctx context.Context,
	open func(context.Context, *grpc.ClientConn) (stream[Q, P], error),
	newBook func(map[string]*discoveryv3.DeltaDiscoveryResponse) book[Q, P],
	newKept func(map[string]*discoveryv3.DeltaDiscoveryResponse) func(Q) (P, bool),
	say func(*statement) Q, follow func() own[Q, P],
) error {
	first, err := down.Recv()
	if err != nil {
		return err
	}
	id := first.GetNode().GetId()
	if id == "" {
		return status.Error(codes.InvalidArgument, "the first request has no node id")
	}
	var kept map[string]*discoveryv3.DeltaDiscoveryResponse
	if r.o.Store != nil {
		kept = r.o.Store.load(id, variant)
	}
	shown := r.join(id)
	defer r.leave(shown)
	s := &session[Q, P]{relay: r, variant: variant, down: down, book: newBook(kept), links: make(chan *link[Q, P]), shown: shown, say: say}
	if r.isOwn(id) {
		s.own = follow()
	}
	s.kept = func() *link[Q, P] {
		if s.live {
			kept = byType(s.book.state())
		}
		if len(kept) == 0 {
			return nil
		}
		return (&keptStream[Q, P]{answer: newKept(kept)}).link(ctx)
	}
	c := &connector[Q, P]{servers: r.o.Servers, open: open, links: s.links, patience: r.o.Patience, failed: func(server string, err error) {
		r.o.Logger.Warn("a server is not in use: trying the next", "proxy", id, "server", server, "err", err)
	}}
	if err := s.run(ctx, c, first); !errors.Is(err, context.Canceled) {
		return err
	}
	return status.FromContextError(context.Canceled).Err()
}

func byType(state []*discoveryv3.DeltaDiscoveryResponse) map[string]*discoveryv3.DeltaDiscoveryResponse {
	out := make(map[string]*discoveryv3.DeltaDiscoveryResponse, len(state))
	for _, of := range state {
		out[of.GetTypeUrl()] = of
	}
	return out
}

package xds

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/encoded"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/memo"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/stream"
	"github.com/portolan-mesh/portolan/xds/stream/nameset"
)

// Options are what a DiscoveryServer is made of.
type Options struct {
	// Configs is the cache whose handled snapshot is served.
	Configs cache.ConfigStoreCache
	// Mesh is the mesh configuration; nil for the defaults.
	Mesh *mesh.Config
	// Types are the resource types served, in the order in which they are sent.
	Types []ResourceType
	// Synced says whether everything was read that is to be served. Until then
	// streams are refused, so that proxies keep what they have.
	Synced func() bool

	// MaxDebounce is the longest time that a change waits for others under load;
	// 0 stands for a second.
	MaxDebounce time.Duration
	// MaxPushes is how many connections are brought up to date at one time; 0
	// stands for twice the processors.
	MaxPushes int
	// StallTimeout closes a stream whose client takes nothing, or answers
	// nothing, for so long; 0 stands for two minutes.
	StallTimeout time.Duration
	// ReadyLimit is how long what leads to a cluster waits until a proxy has that; 0
	// stands for five seconds.
	ReadyLimit time.Duration
	// ResolveGrace is the moment that a proxy is given to resolve the host names of a
	// cluster that it has taken; 0 stands for 200 ms.
	ResolveGrace time.Duration
	// WithdrawLimit is how long a cluster that is gone is kept for what leads to it;
	// 0 stands for ten seconds.
	WithdrawLimit time.Duration
	// WholeRoutes sends route configurations with all their virtual hosts to
	// everyone, also to clients that take these one by one.
	WholeRoutes bool

	// MaxFirstSyncs is how many proxies are brought up from nothing at one time;
	// 0 stands for 100. A hundred times as many wait for their turn, in the order in
	// which they came; beyond that streams are refused.
	MaxFirstSyncs int
	// HangUp closes the connection to a client that is to choose another server; nil
	// ends only its stream.
	HangUp func(remote net.Addr)
	// Moved is when a client was last heard, and has last taken something that was
	// written to it, be it a part of a message, as Conns knows; nil where that is not
	// known.
	Moved func(remote net.Addr) (said, took time.Time)

	Logger *slog.Logger
	// Registerer takes the metrics; nil for none.
	Registerer prometheus.Registerer
}

// ResourceType is a type of resources and how it is served.
type ResourceType struct {
	// Name is the short name: CDS, EDS, LDS, RDS, VHDS.
	Name      string
	Generator generate.Generator
	// Inbound makes those resources of the type that are a workload's own, of a
	// sidecar: they may read its addresses and the services that it serves. They are
	// few, built for each proxy and inserted among those of its class. Affected is
	// asked with a Whole delta only, and what it reads is recorded. Nil for none.
	Inbound generate.Generator
	// Proxyless makes what gRPC clients get instead; nil for nothing.
	Proxyless generate.Generator
	// Full types may be asked for as a whole; see stream.Type.
	Full bool
	// Parent is the type URL whose resources' Children are of this type; empty
	// for none.
	Parent string
	// CoverParent has the version of a resource cover that of the parent of the
	// same name.
	CoverParent bool
	// Target is set of the type that the Refs of resources name, which wait until a
	// client has what they name.
	Target bool
	// Scoped types are of resources that live within those of Parent, whose names
	// begin with the names of these and a slash.
	Scoped bool
}

// DiscoveryServer serves the mesh over xDS. It implements
// discovery.XDSUpdater, through which the registries hand it their rows.
type DiscoveryServer struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer

	options Options
	logger  *slog.Logger
	metrics *metrics
	memo    *memo.Memo
	encoded *encoded.Cache
	names   *nameset.Table // what clients ask for
	shared  *stream.Shared
	worlds  *worlds

	rows   *rows // worker only
	inputs atomic.Pointer[mesh.Inputs]

	context atomic.Pointer[mesh.PushContext]
	moves   atomic.Int64  // see Moves
	ready   chan struct{} // closed when the first context is there
	wakes   chan struct{}
	queue   *pushQueue
	rounds  *rounds

	published published
	admission *admission

	mu          sync.Mutex // guards the fields below
	reasons     map[string]int
	since       time.Time // of the first wake-up since the last push
	connections map[*Connection]struct{}
	stopped     bool
	draining    bool
	streams     sync.WaitGroup // the goroutines of connections
	request     *discovery.PushRequest
}

// New makes a server. It is handed to the registries as their XDSUpdater; then
// its Commit has to be made the last hook of the worker, and the server
// registered with a gRPC server and run.
func New(o Options) *DiscoveryServer {
	if o.Mesh == nil {
		o.Mesh = mesh.DefaultConfig()
	}
	if o.MaxDebounce == 0 {
		o.MaxDebounce = time.Second
	}
	if o.MaxPushes == 0 {
		o.MaxPushes = 2 * processors()
	}
	if o.StallTimeout == 0 {
		o.StallTimeout = 2 * time.Minute
	}
	if o.MaxFirstSyncs == 0 {
		o.MaxFirstSyncs = 100
	}
	if o.ReadyLimit == 0 {
		o.ReadyLimit = 5 * time.Second
	}
	if o.ResolveGrace == 0 {
		o.ResolveGrace = 200 * time.Millisecond
	}
	if o.WithdrawLimit == 0 {
		o.WithdrawLimit = 10 * time.Second
	}
	if o.Synced == nil {
		o.Synced = o.Configs.HasSynced
	}
	s := &DiscoveryServer{
		options: o, logger: o.Logger, memo: memo.New(), encoded: encoded.New(encoded.Options{ControlPlane: "portolan"}), names: nameset.NewTable(),
		shared: stream.NewShared(), rows: newRows(),
		wakes: make(chan struct{}, 1), ready: make(chan struct{}), queue: newPushQueue(o.MaxPushes), rounds: newRounds(),
		reasons: map[string]int{}, connections: map[*Connection]struct{}{},
	}
	s.worlds = newWorlds(o.Types, s.memo, o.Logger)
	s.admission = newAdmission(o.MaxFirstSyncs)
	s.metrics = newMetrics(o.Registerer, s)
	return s
}

// Run publishes changes until ctx ends, and then waits until all streams have
// ended: stop the gRPC server first, or at the same time.
func (s *DiscoveryServer) Run(ctx context.Context) error {
	defer s.streams.Wait()
	defer s.closeAll()
	s.streams.Go(func() { _ = s.encoded.Run(ctx) })
	d := debounce{max: s.options.MaxDebounce}
	for s.await(ctx, &d) {
		if began := time.Now(); s.publish(began) {
			d.began(began)
		}
	}
	return nil
}

// await waits for a change, and until it may be published; false when ctx ends.
func (s *DiscoveryServer) await(ctx context.Context, d *debounce) bool {
	wakes := s.wakes         // nil once there is a change
	var due <-chan time.Time // nil until then
	for {
		select {
		case <-ctx.Done():
			return false
		case took := <-s.rounds.drained:
			d.took(took)
		case <-wakes:
			wakes = nil
		case <-due:
			// Asked before the inputs are read: what it promises is in them. Nothing
			// tells when it turns true, so that it is asked again.
			if s.options.Synced() {
				return true
			}
			due = time.After(syncInterval)
			continue
		}
		if wakes == nil {
			due = time.After(time.Until(d.at(time.Now())))
		}
	}
}

// syncInterval is how often a server that starts asks whether it may publish.
const syncInterval = 10 * time.Millisecond

// Published is closed when the first configuration is served. Streams that come
// earlier are refused.
func (s *DiscoveryServer) Published() <-chan struct{} { return s.ready }

// Ready says what is missing until the first configuration is served, and that
// the server drains.
func (s *DiscoveryServer) Ready() error {
	s.mu.Lock()
	draining := s.draining
	s.mu.Unlock()
	if draining {
		return errors.New("it is being drained")
	}
	select {
	case <-s.ready:
		return nil
	default:
		return errors.New("the first configuration is not published yet")
	}
}

// because counts a reason to push.
func (s *DiscoveryServer) because(reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reasons[reason]++
}

// wake has the pusher look at the inputs, which have changed.
func (s *DiscoveryServer) wake() {
	s.mu.Lock()
	if s.since.IsZero() {
		s.since = time.Now()
	}
	s.mu.Unlock()
	select {
	case s.wakes <- struct{}{}:
	default:
	}
}

// publish derives the next context from the committed inputs and marks all
// connections. Where the two do not differ for a proxy, its push finds nothing
// to do. It is false where nothing was committed since the last.
func (s *DiscoveryServer) publish(at time.Time) bool {
	in, from := s.inputs.Load(), s.context.Load()
	if from != nil && from.Inputs() == *in {
		return false
	}
	to := from.Next(*in)
	request := mesh.Diff(from, to).Request()
	s.mu.Lock()
	request.Reason, request.Start = s.reasons, s.since
	s.reasons, s.since = map[string]int{}, time.Time{}
	s.request = request
	s.published.follow(from, to)
	s.context.Store(to)
	s.moves.Add(1)
	if from == nil {
		close(s.ready)
	}
	connections := slices.Collect(maps.Keys(s.connections))
	s.mu.Unlock()

	s.metrics.publishing(request, to.Revision())
	s.logger.Debug("publishing", "revision", to.Revision(), "full", request.Full,
		"configs", len(request.ConfigsUpdated), "proxies", len(connections))
	s.rounds.begin(at, connections)
	buildersFirst(connections)
	for _, c := range connections {
		c.mark()
	}
	return true
}

// buildersFirst moves one connection of each class before the others of it, which would
// only wait for what that one builds for all of them.
func buildersFirst(connections []*Connection) {
	seen := map[*world]bool{}
	for i, c := range connections {
		if class := c.class.Load(); !seen[class] {
			connections[i], connections[len(seen)] = connections[len(seen)], c
			seen[class] = true
		}
	}
}

// LastRequest is what the last push was about, nil before the first.
func (s *DiscoveryServer) LastRequest() *discovery.PushRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.request
}

// Context is the context published last, nil before the first.
func (s *DiscoveryServer) Context() *mesh.PushContext { return s.context.Load() }

// add takes a connection in and starts its goroutines; it is false where the
// server has stopped.
func (s *DiscoveryServer) add(c *Connection, goroutines ...func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped || s.draining {
		return false
	}
	s.connections[c] = struct{}{}
	s.moves.Add(1)
	for _, g := range goroutines {
		s.streams.Go(g)
	}
	return true
}

func (s *DiscoveryServer) remove(c *Connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.connections, c)
	s.moves.Add(1)
}

// closeAll ends all streams, and lets no more begin.
func (s *DiscoveryServer) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	for c := range s.connections {
		c.cancel(errShutdown)
	}
}

// all are the connections there are.
func (s *DiscoveryServer) all() []*Connection {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.AppendSeq(make([]*Connection, 0, len(s.connections)), maps.Keys(s.connections))
}

// Proxies tells what is known of each connected proxy, by node id; where one has
// several streams, the oldest first.
func (s *DiscoveryServer) Proxies() []ProxyStatus {
	var out []ProxyStatus
	for _, c := range s.all() {
		if st := c.Status(); st != nil {
			out = append(out, *st)
		}
	}
	slices.SortFunc(out, func(a, b ProxyStatus) int {
		return cmp.Or(strings.Compare(a.Node, b.Node), a.ConnectedSince.Compare(b.ConnectedSince))
	})
	return out
}

// For is the generator for proxies of a type.
func (t ResourceType) For(kind discovery.ProxyType) generate.Generator {
	switch {
	case kind != discovery.Proxyless:
		return t.Generator
	case t.Proxyless == nil:
		return nothing{t.Generator.TypeURL()}
	}
	return t.Proxyless
}

// nothing is the generator of a type that some proxies have none of.
type nothing struct{ typeURL string }

// TypeURL implements generate.Generator.
func (n nothing) TypeURL() string { return n.typeURL }

// Affected implements generate.Generator.
func (nothing) Affected(*mesh.View, mesh.Delta) iter.Seq[string] { return func(func(string) bool) {} }

// Build implements generate.Generator.
func (nothing) Build(*mesh.View, string) (*resource.Resource, error) { return nil, nil }

// streamType is a type as the protocol sees it, for proxies of a type.
func (t ResourceType) streamType(kind discovery.ProxyType) stream.Type {
	st := stream.Type{URL: t.Generator.TypeURL(), Full: t.Full, Scoped: t.Scoped}
	if e, ok := t.For(kind).(generate.Emptier); ok {
		st.Empty = e.Empty
	}
	return st
}

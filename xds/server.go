package xds

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cache/kube/clustersecret"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/modules"
	"github.com/portolan-mesh/portolan/storage/seal"
	"github.com/portolan-mesh/portolan/xds/admission"
	"github.com/portolan-mesh/portolan/xds/delivery/nameset"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/desired"
	"github.com/portolan-mesh/portolan/xds/encode"
	"github.com/portolan-mesh/portolan/xds/export"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/meshconfig"
	"github.com/portolan-mesh/portolan/xds/progress"
	"github.com/portolan-mesh/portolan/xds/transcript"
)

// Options configure a DiscoveryServer.
type Options struct {
	// Options say who may have a stream, and what clients may cost.
	admission.Options
	// Configs is the cache whose handled snapshot the server serves.
	Configs cache.ConfigStoreCache
	// Mesh is the mesh configuration under the object of Configs; nil for the defaults.
	Mesh *meshconfig.Config
	// SealingKeys returns the keys that open secrets; without it no secret is served.
	SealingKeys func() *seal.Ring
	// ClusterSecrets returns the secrets of clusters; without it there are none.
	ClusterSecrets func() clustersecret.Set
	// Modules returns the modules of WasmPlugins that were fetched; without it none is served. It is
	// called on the worker, at the end of each task.
	Modules func() modules.Set
	// Types are the resource types served, in the order in which they are sent.
	Types []generate.ResourceType
	// Export has the objects that other control planes may take; nil refuses such clients.
	Export *export.Export
	// Synced says whether the server has read everything that it is to serve. Until then it
	// refuses streams, so that proxies keep what they have. Nil stands for
	// Configs.HasSynced.
	Synced func() bool
	// Registries forks all registries. It is called on the worker, at the end of each
	// task. Without it Moment and WouldBe return false.
	Registries func() discovery.Fork

	// MaxDebounce is the longest time that a change waits for others under load;
	// 0 stands for a second.
	MaxDebounce time.Duration
	// MaxPushes is how many connections build their resources at one time; 0 stands for
	// twice the processors.
	MaxPushes int
	// StallTimeout is how long a client may take no response, or answer none, before the
	// server ends its stream; 0 stands for two minutes.
	StallTimeout time.Duration
	// ReadyLimit is how long a resource waits until the proxy has the clusters that it
	// refers to; 0 stands for five seconds.
	ReadyLimit time.Duration
	// ResolveGrace is the time that a proxy gets to resolve the host names of a new
	// cluster; 0 stands for 200 ms.
	ResolveGrace time.Duration
	// WithdrawLimit is how long the removal of a resource waits for resources that still
	// need it; 0 stands for ten seconds.
	WithdrawLimit time.Duration
	// WholeRoutes sends all clients whole route configurations, also those that take
	// virtual hosts by delta.
	WholeRoutes bool

	// Registrar is told of the stream of each proxy, and what it reports of its health; nil is
	// not told.
	Registrar discovery.Registrar

	// LastActivity returns when a client last sent something, and when it last took something,
	// parts of messages included. secure.Conns implements it; without it both times are
	// unknown.
	LastActivity func(remote net.Addr) (read, written time.Time)

	Logger *slog.Logger
	// Published is called with each published configuration, once Progress takes it into
	// account. It must not block; nil is not called.
	Published func(*cache.Snapshot)
	// Registerer registers the metrics; nil for none.
	Registerer prometheus.Registerer
}

// DiscoveryServer serves the mesh over xDS. Registries hand it their rows: it
// implements discovery.XDSUpdater.
type DiscoveryServer struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	updater // worker only

	// Gate lets streams in.
	Gate *admission.Gate

	options Options
	logger  *slog.Logger
	metrics *metrics
	desired *desired.Groups
	encoded *encode.Cache
	names   *nameset.Table // shared sets of requested names
	shared  *protocol.Shared

	proxyTypes, objectTypes servedTypes

	committed   atomic.Pointer[commit] // the last commit; nil before the first
	context     atomic.Pointer[mesh.PushContext]
	changeCount atomic.Int64  // the server's share of the result of ChangeCount
	ready       chan struct{} // closed once the first context is published
	wakes       chan struct{}
	queue       *pushQueue
	generations *generations

	changes     progress.Changes
	transcripts *transcript.Book
	// departures are the proxies whose machines have said that they leave.
	departures progress.Departures
	// idlePatches are the patches of EnvoyFilters that match nothing.
	idlePatches idlePatches

	mu          sync.Mutex // guards the fields below
	reasons     map[string]int
	firstWake   time.Time // when the first wake-up since the last push came
	connections map[*Connection]struct{}
	refusing    error          // why the server refuses streams; nil while it takes them
	streams     sync.WaitGroup // the goroutines of connections
	request     *discovery.PushRequest
}

// New makes a server. Hand it to the registries as their XDSUpdater, make its Commit
// the last hook of the worker, register it with a gRPC server, and run it.
func New(o Options) *DiscoveryServer {
	if o.Mesh == nil {
		o.Mesh = meshconfig.Default()
	}
	o.MaxDebounce = cmp.Or(o.MaxDebounce, time.Second)
	o.MaxPushes = cmp.Or(o.MaxPushes, 2*runtime.GOMAXPROCS(0))
	o.StallTimeout = cmp.Or(o.StallTimeout, 2*time.Minute)
	o.ReadyLimit = cmp.Or(o.ReadyLimit, 5*time.Second)
	o.ResolveGrace = cmp.Or(o.ResolveGrace, 200*time.Millisecond)
	o.WithdrawLimit = cmp.Or(o.WithdrawLimit, 10*time.Second)
	if o.Synced == nil {
		o.Synced = o.Configs.HasSynced
	}
	s := &DiscoveryServer{
		options: o, logger: o.Logger, encoded: encode.New("portolan"), names: nameset.NewTable(),
		shared: protocol.NewShared(), transcripts: transcript.NewBook(),
		wakes: make(chan struct{}, 1), ready: make(chan struct{}), queue: newPushQueue(o.MaxPushes), generations: newGenerations(),
		reasons: map[string]int{}, connections: map[*Connection]struct{}{},
	}
	s.Gate = admission.New(o.Options, s.meshConfig, o.Logger, o.Registerer)
	s.updater.count = s.countReason
	s.proxyTypes, s.objectTypes = typesOfProxies(o.Types), typesOfObjects(o.Export)
	s.desired = desired.New(o.Types, o.Logger, func() { s.changeCount.Add(1) })
	s.metrics = newMetrics(o.Registerer, s)
	return s
}

// Run publishes changes until ctx ends, and then waits until all streams have ended.
// Stop the gRPC server first, or at the same time.
func (s *DiscoveryServer) Run(ctx context.Context) error {
	defer s.streams.Wait()
	defer s.closeAll()
	d := debounce{max: s.options.MaxDebounce}
	for s.await(ctx, &d) {
		if began := time.Now(); s.publish(ctx, began) {
			d.began(began)
		}
	}
	return nil
}

// await waits for a change, and then until the change may be published; false when ctx
// ends.
func (s *DiscoveryServer) await(ctx context.Context, d *debounce) bool {
	wakes := s.wakes         // nil once there is a change
	var due <-chan time.Time // nil until then
	for {
		select {
		case <-ctx.Done():
			return false
		case took := <-s.generations.durations:
			d.took(took)
		case <-wakes:
			wakes = nil
		case <-due:
			// Ask Synced before the inputs are read, so that they contain what Synced promises.
			// Nothing signals that it turned true, so ask again later.
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

// syncInterval is how often a starting server asks Options.Synced.
const syncInterval = 10 * time.Millisecond

// Published is closed when the server serves its first configuration. It refuses
// earlier streams.
func (s *DiscoveryServer) Published() <-chan struct{} { return s.ready }

// Ready returns why the server refuses streams: it has no configuration yet, or drains.
// It returns nil when it serves.
func (s *DiscoveryServer) Ready() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refusing == nil && s.Context() == nil {
		return errors.New("the first configuration is not published yet")
	}
	return s.refusing
}

// refuse makes the server refuse new streams. It ends no open one.
func (s *DiscoveryServer) refuse(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refusing = why
}

func (s *DiscoveryServer) countReason(reason string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reasons[reason] += n
}

// wake tells Run that the inputs have changed.
func (s *DiscoveryServer) wake() {
	s.mu.Lock()
	if s.firstWake.IsZero() {
		s.firstWake = time.Now()
	}
	s.mu.Unlock()
	select {
	case s.wakes <- struct{}{}:
	default:
	}
}

// publish derives the next context from the committed inputs, and marks all connections
// for a push. A push finds nothing to do if the change does not concern its proxy.
// publish returns false if nothing was committed since the last call.
func (s *DiscoveryServer) publish(ctx context.Context, at time.Time) bool {
	in, from := s.committed.Load().inputs, s.context.Load()
	if from != nil && from.Inputs() == in {
		return false
	}
	to := from.Next(in)
	request := mesh.Diff(from, to).Request()
	s.mu.Lock()
	request.Reason, request.Start = s.reasons, s.firstWake
	s.reasons, s.firstWake = map[string]int{}, time.Time{}
	s.request = request
	s.changes.Follow(from, to)
	s.context.Store(to)
	s.changeCount.Add(1)
	if from == nil {
		close(s.ready)
	}
	connections := slices.Collect(maps.Keys(s.connections))
	s.mu.Unlock()
	connections = slices.DeleteFunc(connections, func(c *Connection) bool { return !c.identified.Load() })

	s.metrics.pushes.WithLabelValues(strconv.FormatBool(request.Full)).Inc()
	s.metrics.begun.ContainsOrAdd(to.Revision(), request.Start)
	s.logger.Debug("publishing", "revision", to.Revision(), "full", request.Full,
		"configs", len(request.ConfigsUpdated), "proxies", len(connections))
	s.generations.begin(at, connections)
	s.idlePatches.push.Store(to)
	if s.options.Published != nil { // once the push has its number, which Progress needs
		s.options.Published(to.Inputs().Configs)
	}
	for _, c := range connections {
		c.mark()
	}
	if from != nil && !slices.Equal(from.MeshConfig().GetTrustDomainAliases(), to.MeshConfig().GetTrustDomainAliases()) {
		s.Gate.CheckPeers(ctx)
	}
	return true
}

// meshConfig returns the mesh configuration in effect, that of the file before the first context.
func (s *DiscoveryServer) meshConfig() *meshconfig.Config {
	if p := s.Context(); p != nil {
		return p.MeshConfig()
	}
	return s.options.Mesh
}

// LastRequest describes the last push; nil before the first.
func (s *DiscoveryServer) LastRequest() *discovery.PushRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.request
}

// Context returns the context published last; nil before the first.
func (s *DiscoveryServer) Context() *mesh.PushContext { return s.context.Load() }

// add registers a connection and starts its goroutines; false if the server has stopped
// or drains.
func (s *DiscoveryServer) add(c *Connection, goroutines ...func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refusing != nil {
		return false
	}
	s.connections[c] = struct{}{}
	s.changeCount.Add(1)
	for _, g := range goroutines {
		s.streams.Go(g)
	}
	return true
}

func (s *DiscoveryServer) remove(c *Connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.connections, c)
	s.changeCount.Add(1)
}

// closeAll ends all streams, and refuses new ones.
func (s *DiscoveryServer) closeAll() {
	s.refuse(errors.New("it is stopping"))
	for _, c := range s.all() {
		c.cancel(errShutdown)
	}
}

// all returns the open connections.
func (s *DiscoveryServer) all() []*Connection {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.AppendSeq(make([]*Connection, 0, len(s.connections)), maps.Keys(s.connections))
}

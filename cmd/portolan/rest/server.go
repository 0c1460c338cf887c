package rest

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/batch"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/fieldmanager"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/openapi"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/record"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/status"
	"github.com/portolan-mesh/portolan/xds/admin/effect"
	"github.com/portolan-mesh/portolan/xds/verdict/finding"
)

const (
	maxBody      = 32 << 20
	writeTimeout = 30 * time.Second // for a client to read a piece of an answer
	ownWriteWait = time.Second      // for the cache to show a write
	catchUpWait  = 3 * time.Second  // for the cache to reach a version that a client has seen elsewhere
)

// Store gets the writes.
type Store interface {
	storage.ConfigStore
	storage.Batcher
}

// Source answers reads and watches. Any cache that embeds a cache.Feed is one.
type Source interface {
	Snapshot() *cache.Snapshot
	Since(ctx context.Context, revision int64) (*cache.Snapshot, bool)
	At(revision int64) (*cache.Snapshot, bool)
	Next(ctx context.Context, after *cache.Snapshot) (*cache.Snapshot, error)
	Await(ctx context.Context, revision int64) (*cache.Snapshot, error)
}

// Check is one condition of readiness. It holds if Ready returns nil, or is nil.
// Degraded, if set, returns an error when the server works, but worse than it should:
// /readyz shows the error and answers 200. Remark, if set, returns a deliberate
// deviation that people should know, such as a protection that is off: /readyz?verbose
// shows it.
type Check struct {
	Name     string
	Ready    func() error
	Degraded func() error
	Remark   func() string
}

// Quorum is a Source that can ask its store for the present revision, over the network.
// The server can then answer reads that must show every write acknowledged before they
// began.
type Quorum interface {
	StoreRevision(ctx context.Context) (int64, error)
}

// Advisor finds oddities of valid objects in combination with others. Its cost must
// follow what the operations touch.
type Advisor interface {
	// Advise returns warnings for each operation of a batch: what is wrong with its
	// object in combination with others, and what it breaks in others. It omits the
	// warnings of the schema.
	Advise(ops []storage.Op) [][]finding.Advice
	// Await waits until Advise and Findings know a revision of the store, or a later one.
	// It returns the error of ctx.
	Await(ctx context.Context, revision int64) error
	// Findings returns the findings about all objects after some operations, or about the
	// present ones without any; false if the configuration is not read yet.
	Findings(ops []storage.Op) (finding.List, bool)
}

// Previewer finds out what operations would change for proxies. Its cost must follow
// what the operations touch.
type Previewer interface {
	// Preview returns the effect of operations that the store would accept; false if the
	// configuration is not read yet.
	Preview(ops []storage.Op, what effect.Preview) (effect.Effect, bool)
}

// A Backend is a store, and the cache that follows it.
type Backend struct {
	Store Store
	Cache Source
}

// Options configure a Server. Store and Cache are required, and Cache must
// follow Store.
type Options struct {
	Store Store
	Cache Source
	// History reads the past of Store. Without it there are no records, and lists of a
	// revision reach only as far back as Cache does.
	History History
	// Side has further kinds, which are served beside those of Store: the kinds of
	// schema.Side. Nil is for none.
	Side *Backend
	// LastingNamespaces are those that are not deleted.
	LastingNamespaces []string
	// Sealer seals the parts of objects that are for servers only, before they are
	// stored. Without one such objects are refused.
	Sealer Sealer
	// Permit returns why the store may not get an operation: another source of Cache has
	// the object. It returns nil if it may. A nil Permit permits all operations.
	Permit func(op storage.Op) error
	// Reserved returns why no user may do an operation, nil if one may; stored is
	// the object in the store, nil for none. Users may do a reserved deletion only over
	// Socket. A nil Reserved reserves nothing.
	Reserved func(op storage.Op, stored *config.Config) error
	// Place returns the place of an object in the first source other than the store that
	// has the key, "" if unknown. Nil means always unknown.
	Place func(key config.Key) string
	// Behind warns of each source of Cache that cannot be read as it is now, and of what is read and
	// not served as it stands in its source: an object, or without a name those of a kind, in a
	// namespace or in all. Answers to reads have these warnings, and bookmarks of watches that ask for
	// them. A nil Behind warns of nothing.
	Behind func(read config.Key) []string
	// Authenticator finds out who sends a request. Without one the server serves only its
	// own machine.
	Authenticator Authenticator
	// Authorizer decides what users may do; without one, everything.
	Authorizer Authorizer
	// OnRefusal is called for each request that was refused with 401 or 403; it may be
	// nil.
	OnRefusal func(Refusal)
	// Socket is the path of a unix socket that also serves the handler. Only the user of
	// the server can open it, so Private paths answer there.
	Socket string
	// Hosts are the names and addresses by which clients may call the server. Loopback
	// names and addresses need not be listed.
	Hosts []string
	// Certifies says whether the certificate of the server is valid for a name or
	// address, so that clients may call it by that over TLS; nil is for none.
	Certifies func(host string) bool
	// Advisor adds to the warnings of writes; nil for none.
	Advisor Advisor
	// Report returns what became of an object, as the server knows it now. The server asks
	// where one object is read and stored, the report in the store, is not about its last
	// write; stored is nil for none. A nil Report leaves such an object unjudged.
	Report func(object *config.Config, stored *status.Report) *status.Report
	// Previewer says what dry runs would change for proxies; without one there is no
	// preview.
	Previewer Previewer
	// AcceptUnserved accepts objects with security settings that are not served yet:
	// policies, TLS. Otherwise they are refused.
	AcceptUnserved bool
	// Checks must hold for /readyz to answer 200.
	Checks []Check
	// Version is the version that /version reports, such as v1.2.3.
	Version string
	// MaxWatches is how many watches may be open at the same time; 0 is 4000.
	MaxWatches int
	// WatchMemory bounds the bytes of the events that watches are sending. Beyond it the
	// slowest watches are ended. 0 is 64 MiB.
	WatchMemory int64
	// BookmarkInterval is how often a watch gets a bookmark with its revision; 0 is a
	// minute.
	BookmarkInterval time.Duration
	// Registry registers the metrics of the server, and /metrics shows everything in it.
	// Without one the server makes its own.
	Registry *prometheus.Registry
	// Logger may be nil; nothing is logged then.
	Logger *slog.Logger
}

// Server serves the config API.
type Server struct {
	store         Store
	managers      *fieldmanager.Managers
	cache         Source
	history       History
	schemas       schema.Set
	authenticator Authenticator
	authorizer    Authorizer
	onRefusal     func(Refusal)
	advisor       Advisor
	previewer     Previewer
	report        func(object *config.Config, stored *status.Report) *status.Report
	sealer        Sealer
	permit        func(op storage.Op) error
	reserved      func(op storage.Op, stored *config.Config) error
	place         func(key config.Key) string
	behind        func(read config.Key) []string
	hosts         []string
	certifies     func(host string) bool
	socket, id    string
	several       bool // cache has sources other than the store

	// side is the server beside this one, and main the one that this is beside of; nil for
	// none.
	side, main *Server
	lasting    []string

	acceptUnserved bool
	checks         []Check
	version        string
	bookmarks      time.Duration
	logger         *slog.Logger

	mux      *http.ServeMux
	origin   *http.CrossOriginProtection
	metrics  *metrics
	watchers watchers
	budget   *budget
	frames   *frames
}

// New returns a server that is ready to serve through its Handler.
func New(o Options) (*Server, error) {
	if o.Store == nil || o.Cache == nil {
		return nil, errors.New("config API: a store and a cache are required")
	}
	several := o.Permit != nil
	if !several {
		o.Permit = func(storage.Op) error { return nil }
	}
	if o.Place == nil {
		o.Place = func(config.Key) string { return "" }
	}
	if o.Behind == nil {
		o.Behind = func(config.Key) []string { return nil }
	}
	if o.BookmarkInterval <= 0 {
		o.BookmarkInterval = time.Minute
	}
	if o.MaxWatches <= 0 {
		o.MaxWatches = 4000
	}
	if o.WatchMemory <= 0 {
		o.WatchMemory = 64 << 20
	}
	if o.Certifies == nil {
		o.Certifies = func(string) bool { return false }
	}
	if o.Registry == nil {
		o.Registry = prometheus.NewRegistry()
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{
		store: o.Store, managers: fieldmanager.New(func() map[string]*spec.Schema { return openapi.Definitions(o.Store.Schemas()) }), cache: o.Cache, history: o.History, schemas: o.Store.Schemas(),
		authenticator: o.Authenticator, authorizer: o.Authorizer, onRefusal: o.OnRefusal, socket: o.Socket, id: uuid.NewString(),
		advisor: o.Advisor, previewer: o.Previewer, report: o.Report, sealer: o.Sealer, permit: o.Permit, reserved: o.Reserved, place: o.Place, behind: o.Behind, several: several, checks: o.Checks, version: o.Version, bookmarks: o.BookmarkInterval, logger: o.Logger,
		acceptUnserved: o.AcceptUnserved, certifies: o.Certifies,
		mux: http.NewServeMux(), origin: http.NewCrossOriginProtection(), budget: newBudget(),
	}
	s.watchers.limit = o.MaxWatches
	s.frames = newFrames(o.WatchMemory, s.watchers.endSlowest)
	for _, host := range o.Hosts {
		s.hosts = append(s.hosts, hostOnly(host))
	}
	var err error
	if s.metrics, err = newMetrics(o.Registry, s); err != nil {
		return nil, err
	}
	if err := s.addSide(o); err != nil {
		return nil, err
	}
	s.routes(o.Registry)
	return s, nil
}

func (s *Server) routes(registry *prometheus.Registry) {
	s.health()
	s.mux.Handle("/metrics", s.guarded(promhttp.HandlerFor(registry, promhttp.HandlerOpts{})))

	s.mux.HandleFunc("/api", s.discovery(s.coreVersions, s.aggregatedCore))
	s.mux.HandleFunc("/apis", s.discovery(s.groupList, s.aggregatedGroups))
	s.mux.HandleFunc("/apis/{group}", s.document(s.group))
	s.objects("/apis/{group}/{version}")
	if len(s.versions("")) > 0 {
		s.objects("/api/{version}")
	}
	for _, path := range []string{"/version", "/version/{$}"} { // clients of Kubernetes call either
		s.mux.HandleFunc(path, s.document(s.versionInfo))
	}
	s.openAPI()
	s.mux.HandleFunc(definitionsPath, s.document(s.noDefinitions))
	s.mux.HandleFunc(batch.Path, s.batches)
	if s.advisor != nil {
		s.mux.HandleFunc(finding.Path, s.findings)
	}
	s.mux.HandleFunc(record.Path, s.records)
	s.mux.Handle("/", s.guarded(http.HandlerFunc(s.unknownPath)))
}

// objects serves the kinds of an API version, whose path is root.
func (s *Server) objects(root string) {
	s.mux.HandleFunc(root, s.document(s.resourceList))
	for _, path := range []string{
		"/{plural}", "/{plural}/{name}",
		"/namespaces/{namespace}/{plural}", "/namespaces/{namespace}/{plural}/{name}",
		"/namespaces/{namespace}/{plural}/{name}/{subresource}",
	} {
		s.mux.HandleFunc(root+path, s.resource)
	}
}

// Handler serves the API and all paths added with Handle.
func (s *Server) Handler() http.Handler { return s.mux }

// Handle serves a further path on the same mux, behind the same guard,
// authentication and authorization. It must be called before the server serves,
// and panics where the pattern is taken.
func (s *Server) Handle(pattern string, handler http.Handler) {
	s.mux.Handle(pattern, s.guarded(handler))
}

// EndWatches ends all watches, later ones too, as if their time were up. Give it to
// http.Server.RegisterOnShutdown, since Shutdown waits for all requests to end.
func (s *Server) EndWatches() {
	s.watchers.end()
	if s.side != nil {
		s.side.EndWatches()
	}
}

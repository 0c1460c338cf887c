package rest

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cache/rest/batch"
	"github.com/portolan-mesh/portolan/cache/rest/record"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/schema"
)

const (
	maxBody      = 32 << 20
	bodyTimeout  = 60 * time.Second // for a client to send a body
	writeTimeout = 30 * time.Second // for a client to take a piece of an answer
	ownWriteWait = time.Second      // for the cache to show what was written
	catchUpWait  = 3 * time.Second  // for the cache to reach a version a client has seen elsewhere
)

// Store is where writes go.
type Store interface {
	storage.ConfigStore
	storage.Batcher
}

// Source is what answers reads and watches: any cache that embeds a cache.Feed,
// whose methods these are.
type Source interface {
	Snapshot() *cache.Snapshot
	Since(ctx context.Context, revision int64) (*cache.Snapshot, bool)
	At(revision int64) (*cache.Snapshot, bool)
	Next(ctx context.Context, after *cache.Snapshot) (*cache.Snapshot, error)
	Await(ctx context.Context, revision int64) (*cache.Snapshot, error)
}

// Check is one condition of readiness; nil from Ready means that it holds, and a
// nil Ready always does. Degraded, if there is one, says what is worse than it
// should be although the server is of use: /readyz tells it and answers 200.
type Check struct {
	Name     string
	Ready    func() error
	Degraded func() error
}

// Quorum is what a Source may have beside: the revision of its store now, asked
// for over the network. With it the server answers reads that must show every
// write acknowledged before they began.
type Quorum interface {
	StoreRevision(ctx context.Context) (int64, error)
}

// Advisor says of objects that are valid one by one, and about to be written as
// one, what is odd about them beside what there is: a list of warnings for each
// operation. Its cost must follow what the operations touch.
type Advisor interface {
	Advise(ops []storage.Op) [][]string
}

// Options configure a Server. Store and Cache are required, and Cache must
// follow Store.
type Options struct {
	Store Store
	Cache Source
	// History tells of the past of Store. Without one there are no records, and
	// lists of a revision reach as far back as Cache does.
	History History
	// Authenticator says who sends a request. Without one the server serves its
	// own machine only.
	Authenticator Authenticator
	// Authorizer says what they may do; without one, everything.
	Authorizer Authorizer
	// Hosts are the names and addresses by which clients may call the server,
	// beside those of loopback.
	Hosts []string
	// Advisor adds to the warnings of writes; nil for none.
	Advisor Advisor
	// Checks must hold for /readyz to answer 200.
	Checks []Check
	// Version is what /version reports, such as v1.2.3.
	Version string
	// BookmarkInterval is how often a watch is told the revision it is at; zero
	// means a minute.
	BookmarkInterval time.Duration
	// Registry takes the metrics of the server, and /metrics shows all it has.
	// Without one the server makes its own.
	Registry *prometheus.Registry
	// Logger; without one nothing is logged.
	Logger *slog.Logger
}

// Server serves the config API.
type Server struct {
	store         Store
	cache         Source
	history       History
	schemas       schema.Set
	authenticator Authenticator
	authorizer    Authorizer
	advisor       Advisor
	hosts         []string
	checks        []Check
	version       string
	bookmarks     time.Duration
	logger        *slog.Logger

	mux      *http.ServeMux
	origin   *http.CrossOriginProtection
	metrics  *metrics
	watchers watchers
}

// New returns a server that is ready to serve through its Handler.
func New(o Options) (*Server, error) {
	if o.Store == nil || o.Cache == nil {
		return nil, errors.New("config API: a store and a cache are required")
	}
	if o.BookmarkInterval <= 0 {
		o.BookmarkInterval = time.Minute
	}
	if o.Registry == nil {
		o.Registry = prometheus.NewRegistry()
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{
		store: o.Store, cache: o.Cache, history: o.History, schemas: o.Store.Schemas(),
		authenticator: o.Authenticator, authorizer: o.Authorizer,
		advisor: o.Advisor, checks: o.Checks, version: o.Version, bookmarks: o.BookmarkInterval, logger: o.Logger,
		mux: http.NewServeMux(), origin: http.NewCrossOriginProtection(),
	}
	for _, host := range o.Hosts {
		s.hosts = append(s.hosts, hostOnly(host))
	}
	var err error
	if s.metrics, err = newMetrics(o.Registry); err != nil {
		return nil, err
	}
	s.routes(o.Registry)
	return s, nil
}

func (s *Server) routes(registry *prometheus.Registry) {
	s.mux.HandleFunc("/healthz", s.healthz)
	s.mux.HandleFunc("/readyz", s.readyz)
	s.mux.Handle("/metrics", s.guarded(promhttp.HandlerFor(registry, promhttp.HandlerOpts{})))

	s.mux.HandleFunc("/api", s.document(s.coreVersions))
	s.mux.HandleFunc("/apis", s.document(s.groupList))
	s.mux.HandleFunc("/apis/{group}", s.document(s.group))
	s.mux.HandleFunc("/apis/{group}/{version}", s.document(s.resourceList))
	s.mux.HandleFunc("/version", s.document(s.versionInfo))

	s.mux.HandleFunc("/apis/{group}/{version}/{plural}", s.resource)
	s.mux.HandleFunc("/apis/{group}/{version}/{plural}/{name}", s.resource)
	s.mux.HandleFunc("/apis/{group}/{version}/namespaces/{namespace}/{plural}", s.resource)
	s.mux.HandleFunc("/apis/{group}/{version}/namespaces/{namespace}/{plural}/{name}", s.resource)
	s.mux.HandleFunc("/apis/{group}/{version}/namespaces/{namespace}/{plural}/{name}/{subresource}", s.resource)
	s.mux.HandleFunc(batch.Path, s.batches)
	s.mux.HandleFunc(record.Path, s.records)
	s.mux.Handle("/", s.guarded(http.HandlerFunc(s.unknownPath)))
}

// Handler serves the API and what was added with Handle.
func (s *Server) Handler() http.Handler { return s.mux }

// Handle serves a further path on the same mux, behind the same guard,
// authentication and authorization. It must be called before the server serves,
// and panics where the pattern is taken.
func (s *Server) Handle(pattern string, handler http.Handler) {
	s.mux.Handle(pattern, s.guarded(handler))
}

// EndWatches ends all watches, those to come too, as if their time were up:
// give it to http.Server.RegisterOnShutdown, which does not wait for requests
// that never end.
func (s *Server) EndWatches() { s.watchers.end() }

package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync/atomic"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"

	"github.com/portolan-mesh/portolan/cache"
	sources "github.com/portolan-mesh/portolan/cache/aggregate"
	"github.com/portolan-mesh/portolan/cache/beside"
	"github.com/portolan-mesh/portolan/cache/kube/cluster"
	"github.com/portolan-mesh/portolan/cache/kube/clustersecret"
	"github.com/portolan-mesh/portolan/cache/mirror"
	"github.com/portolan-mesh/portolan/cache/statuses"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/credentials"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/maintenance"
	"github.com/portolan-mesh/portolan/cmd/portolan/serve/loglevel"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/access"
	"github.com/portolan-mesh/portolan/discovery/aggregate"
	"github.com/portolan-mesh/portolan/discovery/identity"
	"github.com/portolan-mesh/portolan/discovery/identity/join"
	"github.com/portolan-mesh/portolan/discovery/identity/journal"
	"github.com/portolan-mesh/portolan/discovery/identity/jwks"
	"github.com/portolan-mesh/portolan/discovery/identity/oidc"
	"github.com/portolan-mesh/portolan/discovery/kube"
	"github.com/portolan-mesh/portolan/discovery/kube/remote"
	"github.com/portolan-mesh/portolan/discovery/lastknown"
	"github.com/portolan-mesh/portolan/discovery/modules"
	"github.com/portolan-mesh/portolan/discovery/registration"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/peercert"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/sealing"
	"github.com/portolan-mesh/portolan/xds"
	"github.com/portolan-mesh/portolan/xds/admin"
	"github.com/portolan-mesh/portolan/xds/admission"
	"github.com/portolan-mesh/portolan/xds/explain"
	"github.com/portolan-mesh/portolan/xds/export"
	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/generate/envoyfilter"
	"github.com/portolan-mesh/portolan/xds/progress"
	"github.com/portolan-mesh/portolan/xds/verdict/index"
)

// server has the wired parts that Run runs.
type server struct {
	o       Options
	id      string // of this run: a restarted server counts as a different one
	logger  *slog.Logger
	metrics *prometheus.Registry

	store        *openedStore
	configs      *etcd.Store
	side         side
	secrets      secrets
	tokens       *join.Tokens
	keys         *jwks.Fetcher
	modules      *modules.Fetcher
	issuers      *oidc.Verifier
	proof        identity.Proof // verifies the credential for a first certificate
	keeper       *access.Keeper
	certificates certificates // issues the certificates of workloads
	refused      *journal.Refusals
	worker       *cache.Worker
	mirror       *mirror.Cache
	source       configCache    // the cache from which everything is served
	sources      *sources.Cache // the same if there are other sources; else nil
	kube         []*clusterSource
	kubeSecrets  *clustersecret.Reader
	clusters     map[string]*cluster.Cluster // connections to clusters, by their references
	kubernetes   *kube.Clusters
	remote       *remote.Follower
	flagClusters pmap.Map[bool] // the names of the clusters that flags name
	// secretNamespaces are those whose secrets are read from clusters.
	secretNamespaces pmap.Map[bool]
	began            atomic.Bool // synced was true
	selectors        *meshSelectors
	statusCache      *statuses.Cache
	registry         *aggregate.Registry
	registrar        *registration.Registrar
	xds              *xds.DiscoveryServer
	proxies          *proxyPort
	security         *security
	verdicts         *index.Keeper
	beside           *beside.Sources
	reporter         *progress.Reporter
	remember         *registrySaver
	jobs             *jobs
	api              *rest.Server

	// The readiness and statuses that registries report.
	checks   []rest.Check
	statuses map[discovery.Provider]func() any
}

// newServer wires a server, in the order in which data flows through it.
func newServer(store *openedStore, proxies *proxyPort, security *security, o Options) (*server, error) {
	s := &server{
		o: o, logger: o.Logger, metrics: prometheus.NewRegistry(), store: store, proxies: proxies, security: security, worker: cache.NewWorker(),
		statuses: map[discovery.Provider]func() any{}, refused: security.refused,
	}
	s.metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), security, s.refused, proxies.excess)
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("the name of this machine: %w", err)
	}
	s.selectors = newMeshSelectors(o.Mesh, s.log(loglevel.Cache))
	s.id = fmt.Sprintf("%s:%d/%.8s", host, os.Getpid(), uuid.NewString())
	for _, add := range []func() error{s.addStorage, s.addSide, s.addProofs, s.addAuthority, s.addCache, s.addClusterSecrets, s.addRegistrar, s.addXDS, s.addRegistries, s.addProgress, s.addJobs, s.addAPI} {
		if err := add(); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// addStorage creates the ConfigStore on etcd.
func (s *server) addStorage() (err error) {
	if s.store.metrics != nil {
		s.metrics.MustRegister(s.store.metrics)
	}
	if s.store.backups != nil {
		s.metrics.MustRegister(s.store.backups)
	}
	if s.store.certificate != nil {
		s.metrics.MustRegister(*s.store.certificate)
	}
	options := s.store.limits
	options.Schemas, options.Domain, options.Addresses, options.Log = envoyfilter.Kinds(schema.Pilot()), s.o.Mesh.Domain, s.o.Addresses, s.log(loglevel.Store)
	if s.configs, err = etcd.New(s.store.client, options); err != nil {
		return err
	}
	s.secrets = secrets{
		sealer: sealing.New(s.o.sealingKeys(), s.configs), store: s.configs,
		snapshot: func() *cache.Snapshot { return s.mirror.Snapshot() }, others: s.usedClusterSecrets,
	}
	s.metrics.MustRegister(s.secrets)
	return nil
}

// addCache makes the replicas of the configuration and of its statuses.
func (s *server) addCache() error {
	if err := s.addConfigs(); err != nil {
		return err
	}
	s.statusCache = statuses.New(s.store.client, statuses.Options{
		Base: s.source, Schemas: s.configs.Schemas(), HistoryMemory: s.o.HistoryMemory, Judged: s.o.ObjectStatus, Log: s.log(loglevel.Cache),
	})
	return nil
}

// addXDS creates the xDS server. It receives the rows of the registries, which are created
// after it.
func (s *server) addXDS() error {
	s.modules = modules.New(modules.Options{Worker: s.worker, Configs: s.source.Handled, Logger: s.log(loglevel.XDS)})
	s.xds = xds.New(xds.Options{
		Configs: s.source, Mesh: s.o.Mesh, Types: catalogue.Types(), Synced: s.synced,
		Export:      export.New(export.Options{Schemas: s.configs.Schemas(), AllSources: s.o.ExportSources, Logger: s.log(loglevel.XDS)}),
		WholeRoutes: s.o.WholeRoutes,
		Options: admission.Options{
			Peer: s.peerOf, MayExport: s.mayExport, OnRefusal: s.proxyRefused, HangUp: s.proxies.conns.HangUp,
			MaxFirstSyncs: s.o.MaxFirstSyncs, MaxIdentityStreams: s.o.MaxIdentityStreams, StreamMemory: s.o.StreamMemory, StreamsMemory: s.o.StreamsMemory,
		},
		SealingKeys: s.secrets.sealer.Keys, ClusterSecrets: s.kubeSecrets.Set, Modules: s.modules.Set,
		Registries: func() discovery.Fork { return s.registry.Fork() }, Published: s.publishing(),
		Registrar: s.registrar, LastActivity: s.proxies.conns.LastActivity, Logger: s.log(loglevel.XDS), Registerer: s.metrics,
	})
	s.secrets.sealer.OnChange(func() { s.worker.Post("sealing keys", func() {}) }) // the task ends with a commit
	s.proxies.xds = s.xds
	s.verdicts = index.NewKeeper(verdictSource{s, &keyFaults{root: s.o.Mesh.GetRootNamespace(), keys: s.keys}})
	s.metrics.MustRegister(sourceMetrics{s})
	return s.metrics.Register(s.verdicts)
}

func (s *server) addJobs() error {
	logger := s.log(loglevel.Jobs)
	settles, err := newSettler(s.configs, s.mirror, s.facts, s.metrics, logger)
	if err != nil {
		return err
	}
	leases, err := newLeaseRecorder(s.configs, s.metrics, logger)
	if err != nil {
		return err
	}
	namespaces := savedNamespaces{}
	s.remember = newRegistrySaver(s.configs, func() []lastknown.Source {
		return slices.Concat(lastknown.SourcesOf(s.registry.Registries()), s.savedClusters(), namespaces.of(s.connections()))
	}, logger)
	s.checks = append(s.checks, rest.Check{Name: "last-known", Degraded: s.remember.saver.Degraded, Remark: s.remember.saver.Remark})
	all := []job{
		&pruner{store: s.configs, logger: logger},
		settles,
		leases,
		s.remember,
		&phaseMover{store: s.configs, push: s.xds.Context, progress: s.view, logger: logger},
		&keySetWriter{store: s.configs, root: s.o.Mesh.GetRootNamespace(), push: s.xds.Context, logger: logger},
		&tokenCleaner{store: s.configs, snapshot: s.mirror.Snapshot, logger: logger},
		&sidePruner{side: &s.side, logger: logger},
		&namespaceMaker{side: &s.side, mesh: s.source, always: s.lastingNamespaces(), logger: logger},
	}
	if s.o.ObjectStatus {
		all = append(all, &eventMaker{side: &s.side, statuses: s.statusCache, logger: logger}, &statusWriter{s.configs, progress.Writer{Statuses: s.statusCache, Verdicts: s.verdicts.Index, Logger: logger}})
	}
	if s.o.WriteStatus {
		all = append(all, &clusterStatusWriter{clusters: s.kube, snapshot: s.statusCache.Snapshot})
	}
	s.jobs, err = newJobs(s.store.client, s.metrics, logger, all...)
	return err
}

// addAPI makes the config API, with its views of the other parts.
func (s *server) addAPI() (err error) {
	s.checks = append([]rest.Check{ // the worst first
		{Name: "machines", Ready: s.security.unreachable},
		{Name: "secrets", Degraded: s.secrets.Degraded},
		{Name: "store", Degraded: s.store.healthy},
		{Name: "cache", Ready: s.cacheReady, Degraded: s.mirror.Degraded},
		{Name: "token-issuers", Degraded: s.issuersDegraded},
	}, s.checks...)
	s.checks = append(s.checks, s.security.checks()...)
	if s.store.certificate != nil {
		s.checks = append(s.checks, rest.Check{Name: "store certificate", Degraded: s.store.certified})
	}
	s.checks = append(s.checks, rest.Check{Name: "replicas", Degraded: s.beside.Degraded})
	permit, place := s.besideStore()
	s.api, err = rest.New(rest.Options{
		Permit: permit, Place: place, Behind: s.behind, Reserved: s.reserved, Store: s.configs, Sealer: s.sealers(), Authenticator: s.keeper, Authorizer: s.keeper, OnRefusal: s.requestRefused, Cache: s.statusCache, History: s.configs, Advisor: advisor{s.verdicts, s.xds, s.unreadSources}, Report: s.reportNow, Previewer: previewer{s}, Checks: append(slices.Clone(s.checks), rest.Check{Name: "xds", Ready: s.xds.Ready}),
		MaxWatches: s.o.MaxWatches, WatchMemory: s.o.WatchMemory, Socket: s.o.APISocket, Hosts: s.o.TLS.Names, Certifies: s.security.certifies,
		Registry: s.metrics, Version: s.o.Version, Logger: s.log(loglevel.API),
		AcceptUnserved: s.o.AcceptUnserved, Side: s.side.backend(), LastingNamespaces: s.lastingNamespaces(),
	})
	if err != nil {
		return err
	}
	view := s.view()
	s.api.Handle(admin.ProxiesPath, admin.Proxies(s.xds, view))
	s.api.View(admin.PropagationPath, admin.ServePropagation(view, s.source, s.keptFor))
	s.api.View(admin.ServicesPath, admin.Services(s.xds, admin.Registries{Clusters: s.clustersOf, Places: s.placesOf, Findings: s.verdicts.OfService}))
	s.api.View(admin.MeshPath, admin.ServeMesh(s.xds))
	s.api.View(admin.ReferencesPath, admin.ServeReferences(s.xds))
	s.api.View(admin.ProxySettingsPath, admin.ServeProxySettings(s.xds))
	s.api.Ask(explain.Path, explain.Serve(s.xds, catalogue.Types(), admin.Elsewhere{View: view}))
	s.api.Ask(explain.CheckPath, explain.Check(s.xds, catalogue.Types(), admin.Elsewhere{View: view}))
	s.api.Ask(explain.ResolvePath, explain.Resolve(s.xds, catalogue.Types(), admin.Elsewhere{View: view}))
	s.api.Get(admin.ProxyConfigPath, admin.ServeProxyConfig(s.xds, view, view.ID))
	s.api.View(admin.ProxyLogPath, admin.ServeProxyLog(s.xds, view, view.ID))
	maintenance.Disconnect(s.api, admin.Disconnect(s.xds, view, view.ID, s.configs))
	s.api.Handle(SourcesPath, serveStatus(func() any { return s.sourceList() }))
	s.api.View(SourceObjectsPath, s.serveSourceObjects)
	maintenance.Register(s.api, s.maintenance())
	credentials.JoinTokens(s.api, s.tokens)
	(&joining{s, identity.NewLimited(nil, nil)}).register()
	credentials.Logins(s.api, s.tokenIssuers)
	credentials.Certificates(s.api, s.certificates.issuer)
	credentials.Users(s.api, s.keeper, s.configs)
	for provider, status := range s.statuses {
		s.api.Handle(StatusPath(provider), serveStatus(status))
	}
	if s.o.Profiles {
		serveProfiles(s.api)
	}
	return nil
}

// synced says whether the configuration, all registries and the secrets of clusters were read, and
// the modules of WasmPlugins fetched or tried. It stays true: nobody waits for a cluster that comes later.
func (s *server) synced() bool {
	if !s.began.Load() && s.source.HasSynced() && s.remote.HasSynced() && s.registry.HasSynced() && s.modules.HasSynced() && s.kubeSecrets.HasSynced() {
		s.began.Store(true)
	}
	return s.began.Load()
}

func (s *server) cacheReady() error {
	switch {
	case !s.source.HasSynced():
		return errors.New("the configuration is not read yet")
	case s.statusCache.Snapshot() == nil:
		return errors.New("what servers said of the configuration is not read yet")
	}
	return nil
}

// run serves until asked ends or a part fails. Then it disconnects its proxies, if there are
// other servers, and accepts no more requests. It saves the content of registries and waits
// for the requests under way. It stops the other parts, and the store last.
func (s *server) run(asked context.Context, api, private net.Listener) error {
	storeContext, stopStore := context.WithCancel(context.WithoutCancel(asked))
	defer stopStore()
	ctx, stop := context.WithCancelCause(context.WithoutCancel(asked))
	defer stop(nil)
	storeDone := make(chan error, 1)
	go func() { storeDone <- s.runStore(storeContext, stop) }()
	s.reporter.API = s.security.apiURL(api.Addr())

	group, ctx := errgroup.WithContext(ctx)
	taking, stopTaking := context.WithCancel(ctx)
	defer stopTaking()
	answered := make(chan struct{}) // closed when the last request has ended
	group.Go(func() error { return s.worker.Run(ctx) })
	group.Go(func() error { return s.source.Run(ctx) })
	group.Go(func() error { return s.side.worker.Run(ctx) })
	group.Go(func() error { return s.side.run(ctx, s.source) })
	group.Go(func() error { return s.statusCache.Run(ctx) })
	group.Go(func() error { return s.registry.Run(ctx) })
	group.Go(func() error { return s.remote.Run(ctx) })
	group.Go(func() error { return s.kubeSecrets.Run(ctx) })
	group.Go(func() error { return s.xds.Run(ctx) })
	group.Go(func() error { return s.registrar.Run(ctx) })
	group.Go(func() error { return s.proxies.serve(ctx) })
	group.Go(func() error { return s.proxies.balance(ctx) })
	group.Go(func() error {
		defer close(answered)
		return serveAPI(taking, s.api, s.proxies.excess, s.log(loglevel.API), s.security.api(&apiListener{Listener: api, limit: s.o.MaxAPIConnections, logger: s.log(loglevel.API)}), private)
	})
	group.Go(func() error { return s.security.run(ctx) })
	group.Go(func() error { return s.announce(ctx, api) })
	group.Go(func() error { return s.jobs.run(ctx) })
	group.Go(func() error { return s.keys.Run(ctx) })
	group.Go(func() error { return s.modules.Run(ctx) })
	group.Go(func() error { return s.verdicts.Run(ctx) })
	group.Go(func() error { return s.reporter.Run(ctx) })
	group.Go(func() error { return s.endRevoked(ctx) })
	group.Go(func() error { return s.certificates.authority.Run(ctx) })
	group.Go(func() error {
		return journal.New(s.configs, s.log(loglevel.Identity), s.certificates.issuer.Issued()).Run(ctx)
	})
	group.Go(func() error { return journal.New(s.configs, s.log(loglevel.Identity), s.refused).Run(ctx) })
	group.Go(func() error { return s.keepMember(ctx) })
	if s.store.certificate != nil {
		group.Go(func() error { return peercert.Watch(ctx, s.store.certified, s.log(loglevel.Store)) })
	}
	if s.sources != nil && s.o.Addresses.Enabled() {
		group.Go(func() error { return newClaimer(s.configs, s.source, s.log(loglevel.Cache)).run(ctx) })
	}
	group.Go(func() error { return collectWhenQuiet(ctx, heapTick, giveBackAfter) })
	if s.store.backups != nil {
		group.Go(func() error { return s.store.backups.Run(ctx) })
	}
	group.Go(func() error {
		select {
		case <-asked.Done():
			s.proxies.drain(ctx)
			stopTaking()
			s.remember.flush(ctx) // meanwhile requests end
			<-answered
			stop(nil)
		case <-ctx.Done():
		}
		return nil
	})
	err := group.Wait()
	s.store.hangUp()
	stopStore()
	err = errors.Join(err, <-storeDone)
	s.logger.Info("stopped")
	return err
}

// If the store fails for good, the server stops.
func (s *server) runStore(ctx context.Context, stop context.CancelCauseFunc) error {
	if s.store.run == nil {
		return nil
	}
	err := s.store.run(ctx)
	if err != nil {
		stop(err)
	}
	return err
}

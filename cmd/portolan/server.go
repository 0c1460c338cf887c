package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cache/mirror"
	"github.com/portolan-mesh/portolan/cache/rest"
	"github.com/portolan-mesh/portolan/cache/rest/maintenance"
	sides "github.com/portolan-mesh/portolan/cache/side"
	"github.com/portolan-mesh/portolan/discovery/aggregate"
	"github.com/portolan-mesh/portolan/discovery/consul"
	"github.com/portolan-mesh/portolan/discovery/serviceentry"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds"
	"github.com/portolan-mesh/portolan/xds/admin"
	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/propagation"
)

// drain is how long requests under way may take when the server stops.
const drain = 3 * time.Second

// server is everything that serve runs, wired: data flows from the store
// through the cache and the registries to xDS.
type server struct {
	store    *openedStore
	configs  *etcd.Store
	worker   *cache.Worker
	mirror   *mirror.Cache
	side     *sides.Cache
	registry *aggregate.Registry
	entries  *serviceentry.Store
	consul   *consul.Registry // nil without --consul-address
	xds      *xds.DiscoveryServer
	proxies  *proxyPort
	api      *rest.Server
	reporter *propagation.Reporter
	jobs     *jobs
	logger   *slog.Logger
}

func newServer(store *openedStore, meshConfig *mesh.Config, o *serveOptions, proxies *proxyPort, logger *slog.Logger) (*server, error) {
	s := &server{store: store, proxies: proxies, worker: cache.NewWorker(), logger: logger}
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))

	if store.metrics != nil {
		metrics.MustRegister(store.metrics)
	}
	if store.backups != nil {
		metrics.MustRegister(store.backups)
	}

	options := store.limits
	options.Schemas, options.Domain, options.Log = schema.Pilot(), meshConfig.Domain, logger
	configs, err := etcd.New(store.client, options)
	if err != nil {
		return nil, err
	}
	s.configs = configs
	s.mirror = mirror.New(store.client, mirror.Options{
		Worker: s.worker, Schemas: options.Schemas, Store: configs, Domain: options.Domain, Log: logger,
		Registerer: metrics,
	})
	s.side = sides.New(store.client, sides.Options{Base: s.mirror, Schemas: options.Schemas, Log: logger})
	settles, err := newSettler(configs, s.mirror, metrics, logger)
	if err != nil {
		return nil, err
	}
	all := []job{&pruner{store: configs, logger: logger}, settles}
	if o.statuses {
		all = append(all, s.statusWriter())
	}
	if s.jobs, err = newJobs(store.client, metrics, logger, all...); err != nil {
		return nil, err
	}
	served := xds.Options{
		Configs: s.mirror, Mesh: meshConfig, Types: catalogue.Types(), Synced: s.synced,
		MaxFirstSyncs: o.lifecycle.firstSyncs, HangUp: proxies.conns.HangUp, Moved: proxies.conns.Moved, Logger: logger, Registerer: metrics,
	}
	o.xds.apply(&served)
	s.xds = xds.New(served)
	proxies.xds = s.xds
	if err := s.addRegistries(meshConfig, &o.consul, metrics); err != nil {
		return nil, err
	}
	if err := s.addReporter(); err != nil {
		return nil, err
	}
	if err := proxies.know(replicas{s.reporter.ID, s.side}, metrics); err != nil {
		return nil, err
	}
	s.worker.AtTaskEnd(s.xds.Commit) // after the hooks of the registries

	checks := []rest.Check{
		{Name: "store", Degraded: store.healthy},
		{Name: "cache", Ready: s.cacheReady, Degraded: s.mirror.Degraded},
	}
	if s.consul != nil {
		checks = append(checks, rest.Check{Name: "consul", Ready: s.consul.Ready, Degraded: s.consul.Degraded})
	}
	s.api, err = rest.New(rest.Options{
		Store: configs, Cache: s.side, History: configs, Registry: metrics, Version: version, Logger: logger,
		Advisor: s.entries, Checks: append(checks, rest.Check{Name: "xds", Ready: s.xds.Ready}),
	})
	if err != nil {
		return nil, err
	}
	view := s.view()
	s.api.Handle(admin.ProxiesPath, admin.Proxies(s.xds, view))
	s.api.Endpoint(admin.PropagationPath, admin.ServePropagation(view, s.mirror))
	s.api.Endpoint(admin.ServicesPath, admin.Services(s.xds))
	s.api.Endpoint(admin.ReferencesPath, admin.ServeReferences(s.xds))
	maintenance.Register(s.api, s.maintenance())
	if s.consul != nil {
		s.api.Handle(consulPath, serveConsul(s.consul))
	}
	return s, nil
}

// addRegistries makes the registries. Where several could answer, the first
// does.
func (s *server) addRegistries(meshConfig *mesh.Config, fromConsul *consulRegistry, metrics prometheus.Registerer) error {
	s.registry = aggregate.New(aggregate.Options{XDS: s.xds, Worker: s.worker})
	s.entries = serviceentry.New(serviceentry.Options{
		XDS: s.xds, Worker: s.worker, Configs: s.mirror,
		DefaultExportTo: meshConfig.GetDefaultServiceExportTo(), TrustDomain: meshConfig.GetTrustDomain(),
	})
	if err := s.registry.Add(s.entries); err != nil {
		return err
	}
	var err error
	if s.consul, err = fromConsul.open(s.xds, s.worker, metrics, s.logger); err != nil || s.consul == nil {
		return err
	}
	return s.registry.Add(s.consul)
}

// synced says whether everything that is served was read.
func (s *server) synced() bool { return s.mirror.HasSynced() && s.registry.HasSynced() }

func (s *server) cacheReady() error {
	switch {
	case !s.mirror.HasSynced():
		return errors.New("the configuration is not read yet")
	case s.side.Snapshot() == nil:
		return errors.New("what servers said of the configuration is not read yet")
	}
	return nil
}

// run serves until asked ends or a part fails. It sends its proxies to other
// servers first, where there are any, then stops taking requests, then what they
// need, and the store last.
func (s *server) run(asked context.Context, api net.Listener) error {
	storeContext, stopStore := context.WithCancel(context.WithoutCancel(asked))
	defer stopStore()
	ctx, stop := context.WithCancelCause(context.WithoutCancel(asked))
	defer stop(nil)
	storeDone := make(chan error, 1)
	go func() { storeDone <- s.runStore(storeContext, stop) }()

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.worker.Run(ctx) })
	group.Go(func() error { return s.mirror.Run(ctx) })
	group.Go(func() error { return s.side.Run(ctx) })
	group.Go(func() error { return s.registry.Run(ctx) })
	group.Go(func() error { return s.xds.Run(ctx) })
	group.Go(func() error { return s.proxies.serve(ctx) })
	group.Go(func() error { return s.proxies.balance(ctx) })
	group.Go(func() error { return s.serveAPI(ctx, api) })
	group.Go(func() error { return s.announce(ctx, api) })
	group.Go(func() error { return s.jobs.run(ctx) })
	group.Go(func() error { return s.reporter.Run(ctx) })
	group.Go(func() error { return collectWhenQuiet(ctx, heapTick) })
	if s.store.backups != nil {
		group.Go(func() error { return s.store.backups.Run(ctx) })
	}
	group.Go(func() error {
		select {
		case <-asked.Done():
			s.proxies.drain(ctx)
			stop(nil)
		case <-ctx.Done():
		}
		return nil
	})
	err := group.Wait()
	stopStore()
	err = errors.Join(err, <-storeDone)
	s.logger.Info("stopped")
	return err
}

// runStore keeps the store alive; should it fail for good, the server ends.
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

// announce logs the one line that says the server is ready.
func (s *server) announce(ctx context.Context, api net.Listener) error {
	select {
	case <-ctx.Done():
		return nil
	case <-s.xds.Published():
	}
	if _, err := s.side.Await(ctx, 0); err != nil {
		return nil // ctx has ended
	}
	s.logger.Info("ready", "api", "http://"+api.Addr().String(), "xds", s.proxies.conns.Addr().String(),
		"version", version, "revision", s.mirror.Snapshot().Revision())
	return nil
}

func (s *server) serveAPI(ctx context.Context, l net.Listener) error {
	h := &http.Server{
		Handler: s.api.Handler(), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		ErrorLog: slog.NewLogLogger(s.logger.Handler(), slog.LevelDebug),
	}
	h.RegisterOnShutdown(s.api.EndWatches)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		<-ctx.Done()
		limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
		defer cancel()
		if h.Shutdown(limit) != nil {
			_ = h.Close()
		}
	}()
	err := h.Serve(l)
	if errors.Is(err, http.ErrServerClosed) {
		<-stopped
		return nil
	}
	return fmt.Errorf("serve the config API: %w", err)
}

package serviceentry

import (
	"cmp"
	"context"
	"fmt"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/address"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/health"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// Options configure a Store. XDS, Worker and Configs are required.
type Options struct {
	// Cluster is what the endpoints are said to be in.
	Cluster string
	// XDS takes the rows.
	XDS discovery.XDSUpdater
	// Worker is the one that the handlers of Configs run on.
	Worker *cache.Worker
	// Configs is where ServiceEntries and WorkloadEntries come from. It must not
	// be running yet.
	Configs cache.ConfigStoreCache
	// DefaultExportTo is what an empty exportTo means; empty for public.
	DefaultExportTo []string
	// TrustDomain is that of service accounts; empty for cluster.local.
	TrustDomain string
	// Off turns off what is on otherwise.
	Off Switches
}

// Switches are what may be turned off.
type Switches struct {
	// SelectInstances: ServiceEntries select workload instances of other
	// registries, such as pods, beside WorkloadEntries.
	SelectInstances bool
	// OfferWorkloadEntries: services of other registries, such as Kubernetes,
	// select WorkloadEntries.
	OfferWorkloadEntries bool
	// HealthChecks: a WorkloadEntry that asks for them counts once it is
	// healthy. Turned off, every WorkloadEntry does.
	HealthChecks bool
}

// DefaultTrustDomain is the trust domain where the options name none.
const DefaultTrustDomain = "cluster.local"

// Store is the registry of ServiceEntry and WorkloadEntry objects (Istio's
// ServiceEntryStore). Its queries may be called from any goroutine.
type Store struct {
	discovery.ServiceDiscovery // the index, for reading

	convert  converter
	off      Switches
	xds      discovery.XDSUpdater
	configs  cache.ConfigStoreCache
	handlers discovery.Handlers
	index    *discovery.Index

	// The fields below belong to the worker; the catalog may be read by others.

	catalog   *catalog
	instances instances                     // of other registries
	checked   map[nameKey]*config.Config    // WorkloadEntries whose health matters
	health    map[nameKey]*health.Report    // of all WorkloadEntries, as far as it is known
	assigned  pmap.Map[*address.Assignment] // by address.Path
	dirty     map[hostKey]struct{}          // hosts whose rows may differ
	arrived   []*workload                   // whose proxies are to be told
}

var _ discovery.Instance = (*Store)(nil)

type (
	nameKey struct{ namespace, name string }
	hostKey struct {
		hostname  host.Name
		namespace string
	}
)

// New returns a store that handles the events of o.Configs. It hands over rows
// in a hook that it adds to the worker, so it must be made before whoever
// commits rows in a hook adds that one: a commit that came first would leave
// the rows of its own task for the next. New panics where o.Configs refuses the
// handlers, which is a mistake in the wiring.
func New(o Options) *Store {
	index := &discovery.Index{}
	s := &Store{
		ServiceDiscovery: index,
		convert: converter{
			cluster: o.Cluster, defaultExportTo: o.DefaultExportTo,
			trustDomain: cmp.Or(o.TrustDomain, DefaultTrustDomain),
		},
		off: o.Off, xds: o.XDS, configs: o.Configs, index: index, catalog: newCatalog(),
		instances: instances{byKey: map[string]map[workloadKey]*workload{}, byAddress: map[addressKey][]*workload{}},
		checked:   map[nameKey]*config.Config{}, health: map[nameKey]*health.Report{}, dirty: map[hostKey]struct{}{},
	}
	mustRegister(o.Configs.RegisterEventHandler(schema.ServiceEntry, s.serviceEntryHandler))
	mustRegister(o.Configs.RegisterEventHandler(schema.WorkloadEntry, s.workloadEntryHandler))
	mustRegister(o.Configs.RegisterSnapshotHandler(s.healthHandler))
	mustRegister(o.Configs.RegisterSnapshotHandler(s.addressHandler))
	o.Worker.AtTaskEnd(s.flush)
	return s
}

func mustRegister(err error) {
	if err != nil {
		panic(fmt.Sprintf("serviceentry.New: %v", err))
	}
}

// Provider implements discovery.Instance.
func (s *Store) Provider() discovery.Provider { return discovery.External }

// Cluster implements discovery.Instance.
func (s *Store) Cluster() string { return s.convert.cluster }

// AppendServiceHandler implements discovery.Controller. The handler is called
// on the worker, after the rows of its service were handed over.
func (s *Store) AppendServiceHandler(f discovery.ServiceHandler) { s.handlers.AppendServiceHandler(f) }

// AppendWorkloadHandler implements discovery.Controller. The handler is called
// on the worker for every WorkloadEntry that changed, before its rows are
// handed over. One that comes to be unhealthy is deleted, one that recovers is
// added.
func (s *Store) AppendWorkloadHandler(f discovery.WorkloadHandler) {
	s.handlers.AppendWorkloadHandler(f)
}

// Run waits until ctx ends: all work is done in the handlers of the cache, on
// the worker.
func (s *Store) Run(ctx context.Context) error {
	s.handlers.Close()
	<-ctx.Done()
	return nil
}

// HasSynced is true once the objects of the first list were handed over.
func (s *Store) HasSynced() bool { return s.configs.HasSynced() }

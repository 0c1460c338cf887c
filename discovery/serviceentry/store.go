package serviceentry

import (
	"cmp"
	"context"
	"fmt"
	"sync/atomic"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// Options configure a Store. XDS, Worker and Configs are required.
type Options struct {
	// Cluster is the cluster of the endpoints.
	Cluster string
	// XDS receives the rows.
	XDS discovery.XDSUpdater
	// Worker is the worker that runs the handlers of Configs.
	Worker *cache.Worker
	// Configs holds the ServiceEntries and WorkloadEntries. It must not be running yet.
	Configs cache.ConfigStoreCache
	// DefaultExportTo returns what replaces an empty exportTo by a configuration; empty means
	// public, and so does a nil function. It must not block.
	DefaultExportTo func(*cache.Snapshot) []string
	// TrustDomain is the trust domain of service accounts; empty means
	// discovery.DefaultTrustDomain.
	TrustDomain string
	// Off turns off features that are on by default.
	Off Switches
}

// Switches turn features off; the comments say what each feature does.
type Switches struct {
	// SelectInstances: ServiceEntries select workload instances of other
	// registries, such as pods, beside WorkloadEntries.
	SelectInstances bool
	// OfferWorkloadEntries: services of other registries, such as Kubernetes,
	// select WorkloadEntries.
	OfferWorkloadEntries bool
	// HealthChecks: a WorkloadEntry with HealthChecksAnnotation is used only while it is
	// healthy. Turned off, every WorkloadEntry is used.
	HealthChecks bool
}

// Store is the registry of ServiceEntry and WorkloadEntry objects (Istio's
// ServiceEntryStore). Its queries may be called from any goroutine.
type Store struct {
	discovery.ServiceDiscovery // the index, for reading

	convert  converter
	exportTo func(*cache.Snapshot) []string
	off      Switches
	xds      discovery.XDSUpdater
	configs  cache.ConfigStoreCache
	handlers discovery.Handlers
	index    *discovery.Index

	settled atomic.Pointer[fork] // the state at the end of the last task

	// The fields below belong to the worker.

	known
	dirty   map[hostKey]struct{} // hosts whose rows may differ
	arrived []*workload          // newly selected workloads, whose proxies need a push
}

var _ discovery.Instance = (*Store)(nil)

type (
	nameKey struct{ namespace, name string }
	hostKey struct {
		hostname  host.Name
		namespace string
	}
)

// New returns a store that handles the events of o.Configs. It adds a hook to the worker that
// publishes rows. So create the store before adding a hook that commits rows; otherwise the
// commit misses the rows of its own task. New panics if o.Configs refuses the handlers, which
// is a mistake in the wiring.
func New(o Options) *Store {
	index := &discovery.Index{}
	s := &Store{
		ServiceDiscovery: index,
		convert: converter{
			cluster: o.Cluster, trustDomain: cmp.Or(o.TrustDomain, discovery.DefaultTrustDomain),
		},
		exportTo: o.DefaultExportTo,
		off:      o.Off, xds: o.XDS, configs: o.Configs, index: index, dirty: map[hostKey]struct{}{},
	}
	s.publishState()
	mustRegister(o.Configs.RegisterEventHandler(schema.ServiceEntry, s.serviceEntryHandler))
	mustRegister(o.Configs.RegisterEventHandler(schema.WorkloadEntry, s.workloadEntryHandler))
	mustRegister(o.Configs.RegisterSnapshotHandler(s.exportHandler))
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

// AppendServiceHandler implements discovery.Controller. The worker calls the handler after it
// has published the rows of the service.
func (s *Store) AppendServiceHandler(f discovery.ServiceHandler) { s.handlers.AppendServiceHandler(f) }

// AppendWorkloadHandler implements discovery.Controller. The worker calls the handler for
// every changed WorkloadEntry, before it publishes the rows. An entry that becomes unhealthy
// counts as deleted, and one that recovers as added.
func (s *Store) AppendWorkloadHandler(f discovery.WorkloadHandler) {
	s.handlers.AppendWorkloadHandler(f)
}

// Run waits until ctx ends. The handlers of the cache do all work, on the worker.
func (s *Store) Run(ctx context.Context) error {
	s.handlers.Close()
	<-ctx.Done()
	return nil
}

// HasSynced returns true once the objects of the first list were handled.
func (s *Store) HasSynced() bool { return s.configs.HasSynced() }

package serviceentry

import (
	"slices"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/address"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/health"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// known is all that a Store knows besides its rows. It is a value, like the catalog.
type known struct {
	catalog   catalog
	instances pmap.Map[*workload]           // instances of other registries, by namespace and workloadKey
	checked   pmap.Map[*config.Config]      // WorkloadEntries that may be out of use, by nameKey
	health    pmap.Map[*health.Report]      // of all WorkloadEntries with known health, by nameKey
	assigned  pmap.Map[*address.Assignment] // by address.Path
}

// fork is the state of a Store at the end of a task. It is never modified.
type fork struct {
	*discovery.State

	convert  converter
	exportTo func(*cache.Snapshot) []string
	off      Switches
	known    known
	offers   []discovery.Offer // of the Apply that made it
}

var _ discovery.OfferingFork = (*fork)(nil)

// Offers implements discovery.OfferingFork.
func (f *fork) Offers() []discovery.Offer { return f.offers }

// Fork implements discovery.Instance.
func (s *Store) Fork() discovery.Fork { return s.settled.Load() }

// publishState makes the store's current state available to Fork.
func (s *Store) publishState() {
	state := s.index.State()
	if last := s.settled.Load(); last == nil || last.State != state || last.known != s.known || !slices.Equal(last.convert.defaultExportTo, s.convert.defaultExportTo) {
		s.settled.Store(&fork{State: state, convert: s.convert, exportTo: s.exportTo, off: s.off, known: s.known})
	}
}

// store returns a Store that continues from the fork. It follows no cache.
func (f *fork) store(xds discovery.XDSUpdater) *Store {
	index := discovery.NewIndex(f.State)
	return &Store{
		ServiceDiscovery: index, index: index, convert: f.convert, exportTo: f.exportTo, off: f.off, xds: xds, known: f.known,
		dirty: map[hostKey]struct{}{},
	}
}

// Apply implements discovery.Fork. It calls the handlers that the cache would call.
func (f *fork) Apply(from, to *cache.Snapshot, xds discovery.XDSUpdater) discovery.Fork {
	s := f.store(xds)
	var offers []discovery.Offer
	if !s.off.OfferWorkloadEntries {
		s.AppendWorkloadHandler(func(w *discovery.WorkloadInstance, event cache.Event) {
			offers = append(offers, discovery.Offer{Workload: w, Event: event})
		})
	}
	s.exportHandler(from, to)
	s.healthHandler(from, to)
	s.addressHandler(from, to)
	for c := range pmap.Diff(from.Configs(), to.Configs()) {
		object := c.New
		if !c.HasNew {
			object = c.Old
		}
		switch {
		case isKind(object, schema.ServiceEntry):
			s.serviceEntryHandler(c.Old, c.New, cache.EventUpdate)
		case isKind(object, schema.WorkloadEntry):
			s.workloadEntryHandler(c.Old, c.New, cache.EventUpdate)
		}
	}
	s.flush()
	out := *s.settled.Load()
	out.offers = offers
	return &out
}

// isKind says whether an object is of a kind, whatever the version.
func isKind(object *config.Config, kind config.GroupVersionKind) bool {
	return object.Group == kind.Group && object.Kind == kind.Kind
}

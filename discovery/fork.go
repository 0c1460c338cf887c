package discovery

import "github.com/portolan-mesh/portolan/cache"

// Fork is the state of a registry at the end of a task of the worker. It is never modified,
// and costs no memory beyond later changes. With the registry's own code it derives the rows
// that another configuration would have.
type Fork interface {
	ServiceDiscovery
	// Apply returns the fork after the configuration changes from one snapshot to another, and
	// hands over the rows that differ. The registry must have handled from. Any goroutine may
	// call Apply, which calls xds only from that goroutine.
	Apply(from, to *cache.Snapshot, xds XDSUpdater) Fork
}

// Offer is a change of a workload that Services of other registries may select.
type Offer struct {
	Workload *WorkloadInstance
	Event    cache.Event
}

// OfferingFork is the fork of a registry whose workloads other registries select.
type OfferingFork interface {
	Fork
	// Offers returns what the Apply that made the fork would have told the workload handlers.
	Offers() []Offer
}

// SelectingFork is the fork of a registry that selects workloads of other registries.
type SelectingFork interface {
	Fork
	// Select returns the fork after the workloads of another registry change, and hands over the
	// rows that differ. Any goroutine may call it.
	Select(offers []Offer, xds XDSUpdater) Fork
	// Selects says whether a service selects the workload of another registry.
	Selects(namespace, name string) bool
}

// unconfigured is the fork of a registry that does not follow the configuration.
type unconfigured struct{ *State }

// Apply implements Fork: nothing differs.
func (u unconfigured) Apply(_, _ *cache.Snapshot, _ XDSUpdater) Fork { return u }

// Fork returns a fork for a registry that does not follow the configuration and keeps all it
// knows in the index.
func (x *Index) Fork() Fork { return unconfigured{x.State()} }

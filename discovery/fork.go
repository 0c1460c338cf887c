package discovery

import "github.com/portolan-mesh/portolan/cache"

// Fork is the state of a registry at the end of a task of the worker. It is never
// modified, and costs no memory beyond later changes. It derives the rows that another
// configuration would have, by the registry's own code.
type Fork interface {
	ServiceDiscovery
	// Apply returns the fork as it would be after a change of the configuration, whose
	// first snapshot the registry had handled, and hands over the rows that differ.
	// It may be called from any goroutine; xds is called by that one alone.
	Apply(from, to *cache.Snapshot, xds XDSUpdater) Fork
}

// unconfigured is the fork of a registry that does not follow the configuration.
type unconfigured struct{ *State }

// Apply implements Fork: nothing differs.
func (u unconfigured) Apply(_, _ *cache.Snapshot, _ XDSUpdater) Fork { return u }

// Fork is the fork of a registry that does not follow the configuration and keeps
// what it knows in the index.
func (x *Index) Fork() Fork { return unconfigured{x.State()} }

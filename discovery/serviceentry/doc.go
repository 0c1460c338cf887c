// Package serviceentry is the registry of what users declare: it turns
// ServiceEntry and WorkloadEntry objects into services and endpoints.
//
// The way of a change:
//
//	healthHandler, serviceEntryHandler, workloadEntryHandler,
//	WorkloadInstanceHandler                     keep the catalog, mark hosts dirty
//	Store.flush, as the worker's task ends      rebuilds each dirty host once
//	discovery.Index.Publish                     hands over what differs
//
// So a revision that adds a thousand WorkloadEntries of one ServiceEntry costs
// one rebuild of its hosts, and one WorkloadEntry costs a look at the selectors
// that have a label of it, and the rebuild of the hosts that select it.
//
// convert.go has the rules by which an object becomes services and endpoints;
// it knows nothing of indexes. catalog.go has the indexes. instances.go takes
// the workloads of other registries, which ServiceEntries select like
// WorkloadEntries.
package serviceentry

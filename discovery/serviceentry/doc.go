// Package serviceentry is the registry of the services that users declare: it turns
// ServiceEntry and WorkloadEntry objects into services and endpoints.
//
// The way of a change:
//
//	healthHandler, serviceEntryHandler, workloadEntryHandler,
//	WorkloadInstanceHandler                     keep the catalog, mark hosts dirty
//	Store.flush, as the worker's task ends      rebuilds each dirty host once
//	discovery.Index.Publish                     publishes the rows that differ
//
// So a revision that adds a thousand WorkloadEntries of one ServiceEntry rebuilds its hosts
// once. One WorkloadEntry costs a check of the selectors that have one of its labels, and
// the rebuild of the hosts that select it.
//
// convert.go has the rules by which an object becomes services and endpoints; it does not
// use the indexes. catalog.go has the indexes. instances.go takes the workloads of other
// registries, which ServiceEntries select like WorkloadEntries.
package serviceentry

// Package serviceentry is the registry of the services that users declare: it turns
// ServiceEntry and WorkloadEntry objects into services and endpoints.
//
// The path of a change:
//
//	healthHandler, serviceEntryHandler, workloadEntryHandler,
//	WorkloadInstanceHandler                     keep the catalog, mark hosts dirty
//	Store.flush, as the worker's task ends      rebuilds each dirty host once
//	discovery.Index.Publish                     publishes the rows that differ
//
// So a revision that adds a thousand WorkloadEntries to one ServiceEntry rebuilds its hosts
// once. A change of one WorkloadEntry only checks the selectors that have one of its labels,
// and rebuilds the hosts of the entries that select it.
//
// convert.go has the rules that turn an object into services and endpoints; it does not use
// the indexes. catalog.go has the indexes. instances.go handles the workloads of other
// registries, which ServiceEntries select like WorkloadEntries.
package serviceentry

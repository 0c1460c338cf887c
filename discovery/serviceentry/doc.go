// Package serviceentry is the registry of what users declare: it turns
// ServiceEntry and WorkloadEntry objects into services and endpoints.
//
// The way of a change:
//
//	serviceEntryHandler, workloadEntryHandler   keep the Store's indexes, mark hosts dirty
//	Store.flush, as the worker's task ends      rebuilds each dirty host once
//	discovery.Index.Publish                     hands over what differs
//
// So a revision that adds a thousand WorkloadEntries of one ServiceEntry costs
// one rebuild of its hosts, and one WorkloadEntry costs a look at the selectors
// of its namespace and nothing else.
//
// convert.go has the rules by which an object becomes services and endpoints;
// it knows nothing of indexes. Health checks of WorkloadEntries are not part of
// it: every WorkloadEntry is healthy.
package serviceentry

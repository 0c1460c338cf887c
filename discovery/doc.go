// Package discovery describes the running mesh: services, their endpoints, workload
// instances and the connected proxies. A registry turns a source (ServiceEntry objects,
// Consul, ...) into these, and hands them to the XDSUpdater as rows: all services or
// endpoints of one shard and host. It never merges, and never says what changed.
//
// This package has the parts that registries share. An Index keeps the rows of one
// registry and answers the queries of ServiceDiscovery. Index.Publish hands over a row
// that differs. Handlers keeps the handlers to call. A Publisher is both, for registries
// that do not follow the configuration. Package serviceentry is the
// registry of ServiceEntry and WorkloadEntry objects, consul the one of Consul's
// services, and memory one that is kept by method calls; aggregate reads several as
// one. Package discoverytest has an XDSUpdater for tests, and registrytest the suite
// that every registry passes.
package discovery

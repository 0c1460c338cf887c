// Package discovery describes the running mesh: services, their endpoints, workload
// instances and the connected proxies. A registry turns a source (ServiceEntry objects,
// Consul, ...) into these, and hands them to the XDSUpdater as rows: all services or
// endpoints of one shard and host. It never merges, and never says what changed.
//
// This package has the parts that registries share. An Index keeps the rows of one registry
// and answers the queries of ServiceDiscovery. Index.Publish hands over the rows that changed.
// Handlers keeps the handlers to call. A Publisher is both, for registries that do not follow
// the configuration. Package serviceentry is the registry of ServiceEntry and WorkloadEntry
// objects, consul that of Consul's services. Package memory is a registry whose content
// callers set; aggregate joins several registries. Package discoverytest has an XDSUpdater for
// tests, and registrytest the suite that every registry passes.
package discovery

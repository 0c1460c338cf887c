// Package discovery is the model of what runs in the mesh: services, their
// endpoints, workload instances and the proxies that ask. A registry turns a
// source (ServiceEntry objects, Consul, ...) into these and hands them to the
// XDSUpdater as rows: the full set of what one shard knows of one host. It never
// merges, never says what changed.
//
// What registries have in common is here: an Index keeps the rows of one and
// answers the queries of ServiceDiscovery, Index.Publish hands over a row that
// differs, Handlers keeps whom to tell. Package serviceentry is the registry of
// ServiceEntry and WorkloadEntry objects, consul that of a Consul's services, memory
// one kept by method calls; aggregate reads several as one. Package discoverytest
// has an XDSUpdater for tests, and registrytest the suite that every registry
// passes.
package discovery

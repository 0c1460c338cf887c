// Package discovery is the model of what runs in the mesh: services, their
// endpoints, workload instances and the proxies that ask. A registry turns a
// source (ServiceEntry objects, Consul, ...) into these and hands them to the
// XDSUpdater as rows: the full set of what one shard knows of one host. It never
// merges, never says what changed.
package discovery

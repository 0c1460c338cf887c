package loglevel

import "log/slog"

// A Component is a part of the server with a log level of its own.
type Component string

// The components. A line that belongs to no other is of Server.
const (
	API        Component = "api"        // the config API, and who calls it
	Cache      Component = "cache"      // the replicas of the store and of other sources
	Etcd       Component = "etcd"       // what etcd itself says, and its client
	Identity   Component = "identity"   // certificates, tokens and their keys
	Jobs       Component = "jobs"       // what one server does for all
	Registries Component = "registries" // Consul, endpoint files, machines that register
	Server     Component = "server"     // start and end, ports
	Store      Component = "store"      // the store, its members and backups
	XDS        Component = "xds"        // proxies and what is pushed to them
)

// Components returns all components, in order.
func Components() []Component {
	return []Component{API, Cache, Etcd, Identity, Jobs, Registries, Server, Store, XDS}
}

// key is the attribute that says of which component a line is.
const key = "component"

// Attr is the attribute of a logger whose lines are of the component.
func (c Component) Attr() slog.Attr { return slog.String(key, string(c)) }

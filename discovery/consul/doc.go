// Package consul is the registry of services in Consul's catalogue.
//
// Each datacentre has an actor of its own, which does all I/O and never runs on the
// worker. It reads a service as a whole, its instances with their checks, when
// something says that it has changed. If the services are few enough, that is a
// blocking query for each. Otherwise it is blocking queries for the lists of services,
// of nodes, and of checks that do not pass, and one for each node (plan). The actor
// converts answers and keeps them in a catalog. It posts each service that differs to
// the worker, which hands over the full row of that service:
//
//	datacenter.run -> follow -> watch -> reads -> converter.instance -> catalog.take
//	    -> Worker.Post -> rowOf -> Publisher.Publish
//
// The registry would rather be late than wrong about removals. It ignores an answer
// that is an error, or comes from a Consul without a leader. A Consul may have lost its
// data: its servers are others than before an outage, its index goes backwards, or it
// has no services any more. The registry then takes what it has, and keeps what it
// lacks for Options.ResetHold. A token that may read less than before hides entries
// from answers; such an answer removes nothing.
//
// The content of a datacentre can be saved (lastknown.Source). A server that starts
// while Consul is away serves it (Options.Memory).
package consul

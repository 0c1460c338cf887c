// Package consul is the registry of services in Consul's catalogue.
//
// Each datacentre has its own actor, which does all I/O and never runs on the worker. When a
// service changes, the actor reads it as a whole: its instances with their checks. To find
// changes, it sends a blocking query for each service if there are few. Otherwise it sends
// blocking queries for the lists of services, of nodes and of checks that do not pass, and one
// for each node (plan). The actor converts answers and keeps them in a catalog. It posts each
// changed service to the worker, which publishes the full row of that service:
//
//	datacenter.run -> follow -> watch -> reads -> converter.instance -> catalog.setAnswer
//	    -> Worker.Post -> rowOf -> Publisher.Publish
//
// The registry would rather be late than wrong about removals. It ignores errors, and answers
// from a Consul without a leader. Consul may have lost its data: after an outage its servers
// are others than before, its index goes back, or it has no services any more. The registry
// then takes over what Consul has, and keeps what Consul lacks for Options.ResetHold. If the
// token may read less than before, answers lack hidden entries; such an answer removes
// nothing.
//
// The content of a datacentre can be saved (lastknown.Source). A server that starts while
// Consul is away serves the saved content (Options.Memory).
package consul

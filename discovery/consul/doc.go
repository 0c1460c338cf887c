// Package consul is the registry of services in Consul's catalogue.
//
// Each datacentre has an actor of its own, which does all I/O and never runs on
// the worker. It follows the catalogue by blocking queries: one for each service
// where these are few enough, else two for each node, else it asks for one
// service after the other. What comes is converted and kept in a catalog; what
// differs is posted to the worker by the name of its service, where the full row
// of that service is handed over:
//
//	datacenter.run -> follow -> watch -> converter.instance -> catalog.take
//	    -> Worker.Post -> rowOf -> discovery.Index.Publish
//
// The registry would rather be late than wrong about what is gone. An answer
// that is an error, or comes from a Consul without a leader, says nothing. A
// Consul that has lost its data (its servers are others than before an outage,
// or its index goes backwards) is believed in what it has, and what it lacks is
// kept for Options.ResetHold. An answer from which a token that may read less
// than before hides things takes nothing away.
package consul

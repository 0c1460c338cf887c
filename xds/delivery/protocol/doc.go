// Package protocol is the xDS protocol, of one type on one stream, as a state machine: no
// I/O, no knowledge of the mesh. A Subscription serves both variants, state of the world
// and delta.
//
// A Subscription holds as Sets, which subscriptions share, what the client should have
// (desired) and what it has acknowledged (acked). A resource that differs between them is
// due. The owner of a stream passes the desired Set and the requests of the client, and
// sends what Next returns, as far as an Allow permits. A resource goes this way:
//
//	SetDesired  the desired form changes: the resource is due
//	Next        plan chooses what goes now; the response is in flight, and Next returns
//	            no other before the answer
//	Request     answered takes an ACK: the set of the response becomes acked (accept). At a
//	            NACK acked stays, the refused resource is rejected or, if the response had
//	            several, becomes a suspect (reject)
//
// A Subscription has no lock: one goroutine at a time uses it. Subscriptions of many
// streams share two caches, which lock themselves: a Shared, which a timer empties, and a
// nameset.Table.
//
// Protocol: https://www.envoyproxy.io/docs/envoy/v1.40.0/api-docs/xds_protocol
package protocol

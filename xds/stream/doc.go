// Package stream is the xDS protocol, of one type on one stream, as a pure state
// machine: no I/O, no locks, no knowledge of the mesh. Both variants, state of
// the world and delta, are served by one Session.
//
// The owner of a stream passes what the client says to Session.Request, what the
// client should have to Session.Offer, and sends what Session.Next returns. A
// Session keeps what the client lacks, not what it has: that is the difference
// to the Set offered last.
//
// Protocol: https://www.envoyproxy.io/docs/envoy/v1.40.0/api-docs/xds_protocol
package stream

// Package stream is the xDS protocol, of one type on one stream, as a pure state
// machine: no I/O, no locks, no knowledge of the mesh. Both variants, state of
// the world and delta, are served by one Session.
//
// The owner of a stream passes what the client says to Session.Request, what the
// client should have to Session.Offer, and sends what Session.Next returns, as far
// as an Allow lets it. A Session holds what the client has and what it should have
// as Sets, which sessions share: what is due is where they differ.
//
// Protocol: https://www.envoyproxy.io/docs/envoy/v1.40.0/api-docs/xds_protocol
package stream

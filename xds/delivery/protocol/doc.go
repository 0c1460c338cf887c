// Package protocol is the xDS protocol, of one type on one stream, as a state machine: no
// I/O, no knowledge of the mesh. A Subscription serves both variants, state of the world
// and delta.
//
// A Subscription has no lock: one goroutine at a time uses it. Subscriptions of many
// streams share two caches, which lock themselves: a Shared, which a timer empties, and a
// nameset.Table.
//
// The owner of a stream passes requests to Subscription.Request and what the client should
// have to Subscription.SetDesired. It sends what Subscription.Next returns, as far as an
// Allow permits. A Subscription holds what the client has and what it should have as Sets,
// which subscriptions share: where they differ something is due.
//
// Protocol: https://www.envoyproxy.io/docs/envoy/v1.40.0/api-docs/xds_protocol
package protocol

// Package xds serves the mesh to proxies. The DiscoveryServer collects the rows
// of the registries (inputs.go), and when a task of the worker ends commits them
// as one Inputs pointer. A wake-up, spaced by the debouncer, publishes: the next
// PushContext is derived and every connection is queued (server.go, queue.go).
// A connection's push brings its world of resources up to date and offers it to
// the sessions of its stream (push.go, world.go); what the client says comes in
// through connection.go.
//
//	rows -> commit -> wake -> publish -> queue -> push -> Session.Offer -> wire -> Session.Request
package xds

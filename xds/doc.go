// Package xds serves the mesh to proxies. The DiscoveryServer collects the rows of the
// registries (inputs.go). When a task of the worker ends, it commits them as one Inputs
// pointer. A wake-up, spaced by the debouncer, publishes: it derives the next
// PushContext, and marks every connection for a push (server.go). Pushes take turns
// (queue.go). A push takes the proxy's desired resources to the new context (package
// desired), and hands them to the connection's Sequencer (push.go, package delivery). The
// client's requests come in through connection.go, once package admission has let its stream
// in.
//
//	rows -> commit -> wake -> publish -> push -> Sequencer.SetDesired -> wire -> Sequencer.Request
package xds

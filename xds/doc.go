// Package xds serves the mesh to proxies. The DiscoveryServer collects the rows of the
// registries. When a task of the worker ends, Commit makes one mesh.Inputs of the rows and
// the configuration (inputs.go). A wake-up, spaced by the debouncer, publishes: it derives
// the next PushContext, and marks every connection for a push (server.go). Pushes take
// turns to build (queue.go). A push advances the proxy's desired resources to the new
// context (package desired), and hands them to the connection's Sequencer (push.go, package
// delivery). Package admission decides who may have a stream. connection.go then reads the
// client's requests, and progress.go notes how far the client has come.
//
//	rows -> commit -> wake -> publish -> push -> Sequencer.SetDesired -> wire -> Sequencer.Request
package xds

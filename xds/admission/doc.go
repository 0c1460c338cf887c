// Package admission decides who may have a stream of xDS, and what its client may cost.
//
// A Gate lets streams in. It asks Options.Peer who a client has proved to be, compares that
// with the node that the client sends, and remembers whom it refused. A Stream is one
// stream that was let in. It waits for a slot for its first sync, and is charged for the
// memory of its subscriptions. The gate ends a stream when the proof of its client ends, or
// when it takes too much.
//
//	Gate.Open -> Stream.BeginSync -> Admit -> Keep, Drop ... -> Synced ... -> Release
package admission

// Package admission decides who may have a stream of xDS, and what its client may cost.
//
// A Gate lets streams in: it asks who the client has proved to be, holds that against what the
// client says of itself, and remembers whom it refused. A Stream is what one client was let in
// as. It waits for the slot of its first sync, and the memory for its subscriptions is charged
// to it. The gate ends streams whose proof has ended, and those that take too much.
//
//	Gate.Open -> Stream.BeginSync -> Admit -> Keep, Drop ... -> Synced ... -> Release
package admission

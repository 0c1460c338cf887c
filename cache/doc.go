// Package cache keeps full local replicas of configuration sources. Reads take
// a pointer to an immutable Snapshot and never lock or touch the network.
//
// A source makes one Snapshot per revision and hands it to its Feed:
//
//	Feed.Publish -> newest Snapshot stored -> Worker.Post
//	Worker.Run   -> Feed.handle: the difference Handled -> Snapshot, the
//	                handlers of each changed object, Handled moved forward
//	             -> the hooks of Worker.AtTaskEnd (rows are committed)
//	             -> HasSynced
//
// So what changed is always the difference of two snapshots, and never an event
// that somebody had to remember. Whoever needs every revision and not only the
// newest, such as a watch of the API, walks Since and Next.
//
// Package mirror feeds from etcd, package memory from a store in memory;
// cachetest is the suite that each cache passes, typed asks a Snapshot the
// questions that each kind calls for.
package cache

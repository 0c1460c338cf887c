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
// So a change is always the difference of two snapshots, and never an event that
// somebody had to remember. A watch of the API needs every revision and not only the
// newest, so it follows by Since and Next.
//
// Package mirror feeds from etcd, package memory from a store in memory, package file
// from a directory. Package aggregate makes one cache of several. Package statuses adds
// the reports of servers to the snapshots of another cache. Every cache passes the suite
// of package cachetest.
package cache

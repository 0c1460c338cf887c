// Package mirror is the cache of the etcd store: a cache.Snapshot per revision,
// kept equal to the configuration tree of etcd.
//
// Cache.Run lists the tree at one revision (list.go, scan.go: streamed where the
// server can, and decoded on all cores as it comes, decode.go) and watches it
// from the next (watch.go). All events of one revision become one snapshot, so
// no reader ever sees half of a transaction; progress marks move the revision
// alone. A watch that was cut goes on where it stopped. Where that is no longer
// possible Run lists again, and the handlers are told of the difference:
//
//	compacted  the next revision is gone
//	epoch      the store is another one, or went back: a restore (epoch.go)
//	diverged   a comparison found a difference, which is a bug (check.go)
//
// Beside the watch, ask (ask.go) asks the store who it is and where it stands,
// and has the watch tell its progress: every few seconds, and at once while
// somebody waits for a revision. That gives Staleness, which is never less than
// the truth, and finds a watch that went silent. check compares the cache with
// the store as of the same revision: keys and revisions every few minutes, and
// values whenever the connection was lost.
//
// Without etcd the cache serves what it has, and says so by Degraded. A value
// that cannot be decoded is logged and counted, and the last good object goes on
// serving; it never stops a list or a watch, nor does a key of an unknown kind.
// Quarantine (quarantine.go) shows both. A store that cannot be given an id
// (a user who may only read) is mirrored all the same.
//
//	c := mirror.New(client, mirror.Options{Worker: worker, Schemas: schema.Pilot(), Store: store})
//	err := c.RegisterEventHandler(schema.VirtualService, handler)
//	go worker.Run(ctx)
//	err = c.Run(ctx)
package mirror

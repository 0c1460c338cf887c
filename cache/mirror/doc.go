// Package mirror is the cache of the etcd store: a cache.Snapshot per revision,
// kept equal to the configuration tree of etcd.
//
// Cache.Run lists the tree at one revision (list.go) and watches it from the
// next (watch.go). All events of one revision become one snapshot, so no reader
// ever sees half of a transaction; progress marks move the revision alone. A
// watch that was cut goes on where it stopped. Where that is no longer possible,
// because the history was compacted or the store went back to an older revision,
// Run lists again, and the handlers are told of the difference.
//
// A value that cannot be decoded is logged, and the last good object goes on
// serving; it never stops a list or a watch.
//
//	c := mirror.New(client, mirror.Options{Worker: worker, Schemas: schema.Pilot(), Store: store})
//	err := c.RegisterEventHandler(schema.VirtualService, handler)
//	go worker.Run(ctx)
//	err = c.Run(ctx)
package mirror

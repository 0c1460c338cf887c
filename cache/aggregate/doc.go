// Package aggregate makes one cache of several sources of configuration, one of which is
// the store that takes the writes.
//
// The cache has the union of their objects (merge.go). Where several sources have a key,
// the object of the first source counts. The others are shadowed: their changes are no
// event, and if the winner goes, the next one takes its place, which is an update.
// Snapshot.Shadows shows both. An object of a source other than the store says so in
// its Meta.Source.
//
// The store owns the clock. Its revisions are followed one by one, with its epoch, its
// addresses and its health. A change of another source makes a snapshot of the same
// revision (follow.go). The cost follows the change; as long as no other source has
// objects, the map of the store is the map of the cache.
//
// A source that fails or lags keeps its last content, and Degraded and Statuses name it.
// It holds up nobody but a first start, and that for Options.FirstSync.
//
// Writes go to the store (writes.go). The store may make an object that shadows one of
// a source behind it, and delete and restore what it has, also where that is shadowed.
// All other writes of what another source has are storage.ErrReadOnly.
//
//	c, err := aggregate.MakeCache(aggregate.Options{Worker: worker, Store: etcd, Sources: []aggregate.Source{
//		{Name: "etcd", Cache: etcd}, {Name: "files", Cache: files},
//	}})
//	err = c.Run(ctx) // runs the sources, too
package aggregate

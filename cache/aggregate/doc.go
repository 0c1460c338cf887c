// Package aggregate makes one cache of several sources of configuration. One of them is
// the store, which takes the writes.
//
// The cache has the union of their objects (merge.go). If several sources have a key,
// the object of the first source counts and shadows the others: their changes are no
// events. If the first object goes, the next one takes its place, which is an update.
// Snapshot.Shadows shows both. The Meta.Source of an object names its source, unless
// that is the store.
//
// The store owns the clock. The cache follows its revisions one by one, with its epoch, its
// addresses and its health. A change of another source makes a snapshot of the same
// revision (follow.go). The cost follows the change; as long as no other source has
// objects, the map of the store is the map of the cache.
//
// A source that fails or lags keeps its last content, and Degraded and Statuses name it.
// It delays only a first start, at most by Options.FirstSync, or sixty times that while
// it is being read.
//
// Writes go to the store (writes.go). The store may create an object that shadows one of a
// source behind it. It may delete and restore its own objects, shadowed ones too. All other
// writes to objects of other sources fail with storage.ErrReadOnly.
//
//	c, err := aggregate.MakeCache(aggregate.Options{Worker: worker, Store: etcd, Sources: []aggregate.Source{
//		{Name: "etcd", Cache: etcd}, {Name: "files", Cache: files},
//	}})
//	err = c.Run(ctx) // runs the sources, too
package aggregate

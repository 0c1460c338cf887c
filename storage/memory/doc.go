// Package memory keeps configuration in memory. A Store is a
// storage.ConfigStore, a storage.Batcher and a storage.Historian that every
// reader sees as a sequence of immutable maps, one for each revision.
//
// Writers (Apply, and the single verbs, which are batches of one) take turns:
// each has its operations decided against the newest map by package plan, makes
// the next map, keeps it among the last states, publishes it with one store of
// a pointer, and records what was done. Readers load that pointer.
//
//	store := memory.New(schema.Pilot(), memory.Options{})
//	version, err := store.Create(ctx, object)
//
// A controller that follows the store takes Changed before it takes Snapshot,
// and waits on the former when it is done with the latter.
package memory

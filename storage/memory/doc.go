// Package memory keeps configuration in memory. A Store is a
// storage.ConfigStore, a storage.Batcher and a storage.Historian that every
// reader sees as a sequence of immutable maps, one for each revision.
//
// Writers (Apply, and the single verbs, which are batches of one) run one at a time.
// Package plan decides their operations against the newest map. A writer makes the next
// map, adds it to the last states, publishes it by storing a pointer, and records the
// change. Readers load that pointer.
//
//	store := memory.New(schema.Pilot(), memory.Options{})
//	version, err := store.Create(ctx, object)
//
// A controller that follows the store calls Changed before Snapshot, and waits on that
// channel once it has handled the snapshot.
package memory

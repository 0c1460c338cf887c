package cache

import (
	"context"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
)

// Event says what happened to an object.
type Event int

// The events.
const (
	EventAdd Event = iota
	EventUpdate
	EventDelete
)

// String implements fmt.Stringer.
func (e Event) String() string {
	switch e {
	case EventAdd:
		return "add"
	case EventUpdate:
		return "update"
	default:
		return "delete"
	}
}

// Handler handles a change of one object. On an add old is nil, on a delete curr is. On
// an update old is exactly what the handler last got. Handlers run on the worker, one at
// a time; they do no I/O.
type Handler func(old, curr *config.Config, event Event)

// SnapshotHandler handles a new snapshot. from is the one that it last got, nil at
// first. It compares the trees that it needs by pmap.Diff, which costs nothing if they
// are the same. It runs on the worker, before the handlers of objects and in the same
// task; it does no I/O.
type SnapshotHandler func(from, to *Snapshot)

// ConfigStoreCache is a full local replica of a config source, kept in step with it.
// Reads never touch the network.
//
// Handlers are called in the order of registration, on the worker, from the difference
// of two snapshots: intermediate states of one object may be skipped, the changes of one
// revision are never split, nothing is lost. When a handler runs, the cache is at least
// as fresh as the event.
type ConfigStoreCache interface {
	storage.ConfigStore
	// RegisterEventHandler adds a handler for the objects of a kind. It fails once Run
	// was called.
	RegisterEventHandler(kind config.GroupVersionKind, handler Handler) error
	// RegisterSnapshotHandler adds a handler for the trees beside the objects. It fails
	// once Run was called.
	RegisterSnapshotHandler(handler SnapshotHandler) error
	// Run keeps the replica in step until ctx ends, and then returns nil. The caller runs
	// the worker.
	Run(ctx context.Context) error
	// HasSynced is true once the first list was read and its handlers are done.
	HasSynced() bool
	// Snapshot returns the newest snapshot.
	Snapshot() *Snapshot
	// Handled returns the newest snapshot that all handlers have seen. A push may use it.
	Handled() *Snapshot
}

package cache

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// The defaults of FeedOptions.
const (
	DefaultHistory        = 1000
	defaultHistoryChanges = 20_000
	DefaultHistoryMemory  = 64 << 20
)

// FeedOptions configure a Feed.
type FeedOptions struct {
	// Worker runs the handlers. It is required.
	Worker *Worker
	// Schemas are the kinds of the source.
	Schemas schema.Set
	// Store gets the mutations, and answers questions about versions older than the
	// history. Without one the cache is read-only.
	Store storage.ConfigStore
	// History is how many changed snapshots are kept for followers; 0 is DefaultHistory.
	History int
	// HistoryChanges bounds the old objects that only the history keeps, since one
	// revision may change thousands; 0 is 20,000. The last change is kept whatever its
	// size.
	HistoryChanges int
	// HistoryMemory bounds the memory of these objects in bytes, by an estimate; 0 is
	// DefaultHistoryMemory. The last change is kept whatever its size.
	HistoryMemory int64
}

// Feed is the part that all caches embed: the newest snapshot, the snapshot that
// the handlers have seen, the handlers, and a bounded history for followers of
// every revision. A cache adds Run, which calls Seal and then Publish for each
// revision of its source.
type Feed struct {
	worker  *Worker
	schemas schema.Set
	store   storage.ConfigStore
	history *history
	handled atomic.Pointer[Snapshot]
	synced  atomic.Bool

	mu         sync.Mutex // guards the fields below
	handlers   map[kind][]Handler
	onSnapshot []SnapshotHandler
	sealed     bool
}

// kind is a kind without its version.
type kind struct{ group, kind string }

func kindOf(k config.GroupVersionKind) kind { return kind{k.Group, k.Kind} }

// NewFeed returns a feed without snapshots.
func NewFeed(o FeedOptions) *Feed {
	if o.Worker == nil {
		panic("cache.NewFeed: FeedOptions.Worker is nil")
	}
	if o.History <= 0 {
		o.History = DefaultHistory
	}
	if o.HistoryChanges <= 0 {
		o.HistoryChanges = defaultHistoryChanges
	}
	if o.HistoryMemory <= 0 {
		o.HistoryMemory = DefaultHistoryMemory
	}
	return &Feed{
		worker: o.Worker, schemas: o.Schemas, store: o.Store,
		history: newHistory(o.History, difference{o.HistoryChanges, o.HistoryMemory}), handlers: map[kind][]Handler{},
	}
}

// RegisterEventHandler adds a handler for the objects of a kind, named in any version.
// It fails for a kind that is not served, and once the cache runs: the handler would
// have missed events.
func (f *Feed) RegisterEventHandler(kind config.GroupVersionKind, handler Handler) error {
	if f.schemas.Kind(kind) == nil {
		return fmt.Errorf("handler for %s: %w: the kind is not served by this cache", kind, storage.ErrInvalid)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.sealed {
		return fmt.Errorf("handler for %s: the cache runs already: register handlers before Run", kind)
	}
	f.handlers[kindOf(kind)] = append(f.handlers[kindOf(kind)], handler)
	return nil
}

// RegisterSnapshotHandler adds a handler of snapshots, which runs before the
// handlers of objects. It fails once the cache runs.
func (f *Feed) RegisterSnapshotHandler(handler SnapshotHandler) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.sealed {
		return errors.New("handler for snapshots: the cache runs already: register handlers before Run")
	}
	f.onSnapshot = append(f.onSnapshot, handler)
	return nil
}

// Seal ends the registration of handlers. A cache's Run calls it first; a second call
// fails.
func (f *Feed) Seal() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.sealed {
		return errors.New("the cache runs already")
	}
	f.sealed = true
	return nil
}

// Publish makes s the newest snapshot; s must follow the present one without a gap.
// Readers see it at once; handlers get it on the worker. Publish waits for neither. Only
// one goroutine may publish.
func (f *Feed) Publish(s *Snapshot) {
	f.history.append(s)
	f.worker.Post(f, f.handle)
}

// Replace publishes a snapshot that may not follow the newest without a gap, such as a
// new list. Handlers get the difference as always. The history restarts, because the
// revisions between are unknown.
func (f *Feed) Replace(s *Snapshot) {
	f.history.restart(s)
	f.worker.Post(f, f.handle)
}

// handle is the task on the worker. It calls the snapshot handlers, then each handler of
// objects once per changed object, in key order.
func (f *Feed) handle() {
	from, to := f.handled.Load(), f.Snapshot()
	for _, handler := range f.snapshotHandlers() {
		handler(from, to)
	}
	for change := range pmap.Diff(from.Configs(), to.Configs()) {
		f.notify(change)
	}
	f.handled.Store(to)
	if !f.synced.Load() {
		f.worker.Then(func() { f.synced.Store(true) })
	}
}

func (f *Feed) notify(change pmap.Change[*config.Config]) {
	event, object := EventUpdate, change.New
	switch {
	case !change.HasOld:
		event = EventAdd
	case !change.HasNew:
		event, object = EventDelete, change.Old
	}
	for _, handler := range f.handlersOf(object.GroupVersionKind) {
		handler(change.Old, change.New, event)
	}
}

func (f *Feed) snapshotHandlers() []SnapshotHandler {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.onSnapshot
}

func (f *Feed) handlersOf(kind config.GroupVersionKind) []Handler {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.handlers[kindOf(kind)]
}

// HasSynced is true once the handlers of the first snapshot and the hooks of
// their task are done.
func (f *Feed) HasSynced() bool { return f.synced.Load() }

// Snapshot returns the newest snapshot, nil before the first.
func (f *Feed) Snapshot() *Snapshot { return f.history.newest.Load() }

// Handled returns the newest snapshot that all handlers have seen, nil before the
// first. It is never ahead of Snapshot.
func (f *Feed) Handled() *Snapshot { return f.handled.Load() }

// Lag returns how many revisions the handlers are behind the newest snapshot.
func (f *Feed) Lag() int64 {
	handled := f.Handled() // first, so that it is the earlier of the two
	return max(0, f.Snapshot().Revision()-handled.Revision())
}

// Since returns the configuration just before a revision. A caller that continues from
// there with Next gets that revision and all that follow. It returns false if the
// history does not reach back so far, and before the first snapshot.
//
// A client that has just listed can follow from the first snapshot of a history: Since
// assumes that the configuration before it is the same without the objects of that
// resource version. A cache that can ask its source for more does so, until ctx ends.
func (f *Feed) Since(_ context.Context, revision int64) (*Snapshot, bool) {
	return f.history.since(revision)
}

// At returns the configuration as of a revision; false if the history does not reach
// back, or not yet forward, so far.
func (f *Feed) At(revision int64) (*Snapshot, bool) { return f.history.at(revision) }

// Next returns the snapshot that follows after, and waits for it if there is none yet:
// the revisions come one by one, in order, however slow the caller is. The two may
// differ in nothing but the revision.
//
// It returns ErrCompacted if the history has dropped the next snapshot, or if the source
// went back to an older revision, and otherwise the error of ctx.
func (f *Feed) Next(ctx context.Context, after *Snapshot) (*Snapshot, error) {
	for {
		next, changed, err := f.history.after(after)
		if next != nil || err != nil {
			return next, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-changed:
		}
	}
}

// Await returns the newest snapshot once it is at revision or beyond. So a client reads
// its own write.
func (f *Feed) Await(ctx context.Context, revision int64) (*Snapshot, error) {
	for {
		changed := f.history.wait()
		if s := f.Snapshot(); s != nil && s.Revision() >= revision {
			return s, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("the cache is at revision %s, not yet at %d: %w", f.Version(), revision, ctx.Err())
		case <-changed:
		}
	}
}

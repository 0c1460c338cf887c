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

// How many snapshots a Feed keeps, and how many changed objects at most with
// them, where its options do not say.
const (
	DefaultHistory        = 1000
	DefaultHistoryChanges = 20_000
)

// FeedOptions configure a Feed.
type FeedOptions struct {
	// Worker is what the handlers run on. It is required.
	Worker *Worker
	// Schemas are the kinds of the source.
	Schemas schema.Set
	// Store takes the mutations and answers about versions that are not kept
	// here. Without one the cache is read-only.
	Store storage.ConfigStore
	// History is how many changed snapshots are kept for those who follow; zero
	// means DefaultHistory.
	History int
	// HistoryChanges bounds the objects that are kept for them alone, since one
	// revision may change thousands; zero means DefaultHistoryChanges. The last
	// change is kept whatever its size.
	HistoryChanges int
}

// Feed is the part that all caches share, by embedding it: the newest snapshot
// and the one that the handlers have seen, the handlers, and a bounded history
// for those who follow every revision. A cache adds Run, which calls Seal and
// then Publish for each revision of its source.
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

// kind names a kind whatever the version.
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
		o.HistoryChanges = DefaultHistoryChanges
	}
	return &Feed{
		worker: o.Worker, schemas: o.Schemas, store: o.Store,
		history: newHistory(o.History, o.HistoryChanges), handlers: map[kind][]Handler{},
	}
}

// RegisterEventHandler adds a handler for the objects of a kind, named in any
// version. It fails for a kind that is not served and once the cache runs:
// such a handler would have missed events.
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

// RegisterSnapshotHandler adds a handler that is told of every difference before
// those of objects are. It fails once the cache runs.
func (f *Feed) RegisterSnapshotHandler(handler SnapshotHandler) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.sealed {
		return errors.New("handler for snapshots: the cache runs already: register handlers before Run")
	}
	f.onSnapshot = append(f.onSnapshot, handler)
	return nil
}

// Seal ends the registration of handlers. Run of a cache begins with it; the
// second call fails.
func (f *Feed) Seal() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.sealed {
		return errors.New("the cache runs already")
	}
	f.sealed = true
	return nil
}

// Publish makes s, which follows the newest snapshot without a gap, the newest
// one: readers see it at once, handlers are told on the worker. It never waits
// for either. One goroutine publishes.
func (f *Feed) Publish(s *Snapshot) {
	f.history.append(s)
	f.worker.Post(f, f.handle)
}

// Replace is Publish of a snapshot that may not follow directly from the
// newest, such as that of a new list. Handlers are told of the difference as
// ever; the history begins anew, since what lay between is not known.
func (f *Feed) Replace(s *Snapshot) {
	f.history.restart(s)
	f.worker.Post(f, f.handle)
}

// handle is the task: the handlers of snapshots, then one call per changed object
// and handler, in the order of the keys, then of registration.
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

// Snapshot is the newest, nil before the first.
func (f *Feed) Snapshot() *Snapshot { return f.history.newest.Load() }

// Handled is the newest that all handlers have seen, nil before the first. It
// is never ahead of Snapshot.
func (f *Feed) Handled() *Snapshot { return f.handled.Load() }

// Lag is how many revisions the handlers are behind the newest snapshot.
func (f *Feed) Lag() int64 {
	handled := f.Handled() // first, so that it is not the later of the two
	return max(0, f.Snapshot().Revision()-handled.Revision())
}

// Since returns the configuration as it stood just before a revision: whoever
// goes on from there with Next is told of that revision again, and of all that
// follow. It returns false where the history does not reach back so far, and
// before the first snapshot.
//
// The revision of the first snapshot of a history is within reach, so that a
// client who has just listed can follow: what came before it is taken to be the
// same without the objects that have this resource version. A cache that can ask
// its source for more does so, for as long as ctx lasts.
func (f *Feed) Since(_ context.Context, revision int64) (*Snapshot, bool) {
	return f.history.before(revision)
}

// At returns the configuration as it stood at a revision, false where the
// history does not reach back, or not yet forward, so far.
func (f *Feed) At(revision int64) (*Snapshot, bool) { return f.history.at(revision) }

// Next returns the snapshot that followed after, and waits where there is none
// yet: the revisions come one by one, in order, whatever the speed of the
// caller. The difference of the two may be empty: the revision alone moved.
//
// The error is ErrCompacted where the caller fell so far behind that history
// has forgotten the next one, or the source went back to an older revision;
// otherwise it is that of ctx.
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

// Await returns the newest snapshot as soon as it is at revision or beyond:
// what a client needs to read its own write.
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

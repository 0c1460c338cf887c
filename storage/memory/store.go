package memory

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/history"
	"github.com/portolan-mesh/portolan/storage/plan"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
)

var (
	_ storage.ConfigStore = (*Store)(nil)
	_ storage.Batcher     = (*Store)(nil)
	_ storage.Historian   = (*Store)(nil)
)

// Options of a store. The zero Options are good.
type Options struct {
	// Domain is the DNS suffix of the mesh, set on every object.
	Domain string
	// Now is the clock of creation times; nil is time.Now.
	Now func() time.Time
	// History is how many revisions GetResourceAtVersion reaches back, and how
	// many records of history are kept whatever Prune is told; 0 is 1,000.
	History int
}

// Store is a store in memory. Its versions are revisions counted from 1, the
// empty store.
type Store struct {
	schemas schema.Set
	domain  string
	now     func() time.Time

	current atomic.Pointer[state]
	ledger  atomic.Pointer[storage.Ledger]
	states  *states

	// Writers take turns under mu, from the reading of current to its
	// replacement. It also guards what follows.
	mu sync.Mutex
	// records are those of what was done, oldest first. The slice is replaced or
	// appended to: what it has does not change.
	records []history.Record
	// floors are the highest revisions of records that went, by their scopes.
	floors map[config.Key]int64
}

// state is the store at one revision. It is never modified; superseded is
// closed when there is a newer one.
type state struct {
	revision   int64
	configs    pmap.Map[*config.Config]
	superseded chan struct{}
}

// New makes an empty store of the given kinds.
func New(schemas schema.Set, o Options) *Store {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.History <= 0 {
		o.History = 1000
	}
	s := &Store{schemas: schemas, domain: o.Domain, now: o.Now, states: newStates(o.History), floors: map[config.Key]int64{}}
	first := &state{revision: 1, superseded: make(chan struct{})}
	s.states.add(first)
	s.current.Store(first)
	var own storage.Ledger = stateLedger{s}
	s.ledger.Store(&own)
	return s
}

// Schemas are the kinds served.
func (s *Store) Schemas() schema.Set { return s.schemas }

// Snapshot returns the newest revision and its objects, by the Path of their
// keys.
func (s *Store) Snapshot() (revision int64, configs pmap.Map[*config.Config]) {
	now := s.current.Load()
	return now.revision, now.configs
}

// SnapshotAt returns the objects as of a revision, false where the store was
// not there yet or keeps it no longer. A follower walks the revisions by it.
func (s *Store) SnapshotAt(revision int64) (configs pmap.Map[*config.Config], ok bool) {
	if then := s.states.at(revision); then != nil && revision <= s.current.Load().revision {
		return then.configs, true
	}
	return pmap.Map[*config.Config]{}, false
}

// Changed returns a channel that is closed when the newest revision of this
// moment is no longer the newest. A follower that takes it before Snapshot
// misses nothing.
func (s *Store) Changed() <-chan struct{} { return s.current.Load().superseded }

// Version is the newest revision.
func (s *Store) Version() string { return version(s.current.Load().revision) }

func version(revision int64) string { return strconv.FormatInt(revision, 10) }

// Create implements storage.ConfigStore.
func (s *Store) Create(ctx context.Context, object *config.Config) (string, error) {
	return s.one(ctx, storage.Op{Verb: storage.Create, Config: object})
}

// Update implements storage.ConfigStore.
func (s *Store) Update(ctx context.Context, object *config.Config) (string, error) {
	return s.one(ctx, storage.Op{Verb: storage.Update, Config: object})
}

// Delete implements storage.ConfigStore.
func (s *Store) Delete(ctx context.Context, kind config.GroupVersionKind, name, namespace, resourceVersion string) (string, error) {
	key := config.Key{Kind: kind, Namespace: namespace, Name: name}
	return s.one(ctx, storage.Op{Verb: storage.Delete, Key: key, ResourceVersion: resourceVersion})
}

func (s *Store) one(ctx context.Context, op storage.Op) (string, error) {
	return plan.One(op, func(ops []storage.Op) (string, []storage.Result, error) { return s.Apply(ctx, ops) })
}

// Apply implements storage.Batcher.
func (s *Store) Apply(ctx context.Context, ops []storage.Op) (string, []storage.Result, error) {
	if err := ctx.Err(); err != nil {
		return "", nil, fmt.Errorf("%w: %w", storage.ErrUnavailable, err)
	}
	batch := plan.New(s.schemas, ops)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.current.Load()
	stored := make(map[config.Key]*config.Config, len(ops))
	for _, key := range batch.Keys() {
		if object, ok := now.configs.Get(key.Path()); ok {
			stored[key] = object
		}
	}
	stamp := plan.Stamp{Now: s.now(), NewUID: uuid.NewString, Domain: s.domain}
	steps, err := batch.Decide(stored, stamp)
	if err != nil {
		return "", nil, err
	}
	if plan.Changes(steps) {
		now = s.advance(now, steps)
		s.record(now.revision, steps, storage.OriginOf(ctx), stamp.Now)
	}
	return version(now.revision), plan.Results(steps, version(now.revision)), nil
}

// advance publishes the state that steps make of now. The caller holds mu.
func (s *Store) advance(now *state, steps []plan.Step) *state {
	next := &state{revision: now.revision + 1, configs: now.configs, superseded: make(chan struct{})}
	for _, step := range steps {
		switch step.Outcome {
		case storage.Unchanged:
		case storage.Deleted:
			next.configs = next.configs.Delete(step.Key.Path())
		default:
			object := step.After.Clone()
			object.ResourceVersion = version(next.revision)
			next.configs = next.configs.Set(step.Key.Path(), object)
		}
	}
	s.states.add(next)
	s.current.Store(next)
	close(now.superseded)
	return next
}

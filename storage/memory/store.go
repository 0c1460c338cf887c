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
	"github.com/portolan-mesh/portolan/storage/address"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/history"
	"github.com/portolan-mesh/portolan/storage/plan"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/sealing"
)

var (
	_ storage.ConfigStore = (*Store)(nil)
	_ storage.Batcher     = (*Store)(nil)
	_ storage.Historian   = (*Store)(nil)
	_ storage.Leaser      = (*Store)(nil)
)

// Options of a store. The zero Options are good.
type Options struct {
	// Domain is the DNS suffix of the mesh, set on every object.
	Domain string
	// Now is the clock of creation times; nil is time.Now.
	Now func() time.Time
	// History is how many revisions GetResourceAtVersion reaches back, and the largest
	// number of records that are kept; 0 means 1,000.
	History int
	// Addresses are the ranges of addresses for hosts of ServiceEntries without any. With
	// the zero Ranges no host gets one.
	Addresses address.Ranges
}

// Content is the content of a store at one revision.
type Content struct {
	// Configs has the objects by the Path of their keys, Addresses the assignments to hosts
	// by address.Path.
	Configs   pmap.Map[*config.Config]
	Addresses pmap.Map[*address.Assignment]
}

// Store is a store in memory. Its versions are revisions counted from 1, the
// empty store.
type Store struct {
	schemas schema.Set
	domain  string
	now     func() time.Time
	ranges  address.Ranges

	current atomic.Pointer[state]
	ledger  atomic.Pointer[storage.Ledger]
	states  *states

	// A writer holds mu from its read of current until it has replaced it. mu also guards
	// the fields below.
	mu sync.Mutex
	// records lists the records of all batches, oldest first. The store replaces the slice
	// or appends to it, and changes no element.
	records []history.Record
	// floors has the highest revision of the removed records of each scope.
	floors map[config.Key]int64
	// allotted says who has which address.
	allotted allotted
	// sealing says which key seals secrets.
	sealing sealing.Record
	// leases are those that have not ended, and under which lease an object is. lastLease is
	// the last that was granted.
	leases    map[storage.LeaseID]*lease
	under     map[config.Key]storage.LeaseID
	lastLease storage.LeaseID
}

// state is the store at one revision. It is never modified; superseded is
// closed when there is a newer one.
type state struct {
	Content
	revision   int64
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
	s := &Store{
		schemas: schemas, domain: o.Domain, now: o.Now, ranges: o.Addresses,
		states: newStates(o.History), floors: map[config.Key]int64{}, allotted: newAllotted(),
		leases: map[storage.LeaseID]*lease{}, under: map[config.Key]storage.LeaseID{},
	}
	first := &state{revision: 1, superseded: make(chan struct{})}
	s.states.add(first)
	s.current.Store(first)
	var own storage.Ledger = stateLedger{s}
	s.ledger.Store(&own)
	return s
}

// Schemas are the kinds served.
func (s *Store) Schemas() schema.Set { return s.schemas }

// Snapshot returns the newest revision and what the store holds.
func (s *Store) Snapshot() (revision int64, content Content) {
	now := s.current.Load()
	return now.revision, now.Content
}

// SnapshotAt returns the content of the store at a revision, false if it has not reached
// that or no longer keeps it. Followers use it to visit every revision.
func (s *Store) SnapshotAt(revision int64) (content Content, ok bool) {
	if then := s.states.at(revision); then != nil && revision <= s.current.Load().revision {
		return then.Content, true
	}
	return Content{}, false
}

// Changed returns a channel that is closed when there is a newer revision than now. A
// follower that calls it before Snapshot misses nothing.
func (s *Store) Changed() <-chan struct{} { return s.current.Load().superseded }

// Version is the newest revision.
func (s *Store) Version() string { return version(s.current.Load().revision) }

func version(revision int64) string { return strconv.FormatInt(revision, 10) }

// Create implements storage.ConfigStore.
func (s *Store) Create(ctx context.Context, object *config.Config) (string, error) {
	return s.applyOne(ctx, storage.Op{Verb: storage.Create, Config: object})
}

// Update implements storage.ConfigStore.
func (s *Store) Update(ctx context.Context, object *config.Config) (string, error) {
	return s.applyOne(ctx, storage.Op{Verb: storage.Update, Config: object})
}

// Delete implements storage.ConfigStore.
func (s *Store) Delete(ctx context.Context, kind config.GroupVersionKind, name, namespace, resourceVersion string) (string, error) {
	key := config.Key{Kind: kind, Namespace: namespace, Name: name}
	return s.applyOne(ctx, storage.Op{Verb: storage.Delete, Key: key, ResourceVersion: resourceVersion})
}

func (s *Store) applyOne(ctx context.Context, op storage.Op) (string, error) {
	return plan.ApplyOne(op, func(ops []storage.Op) (string, []storage.Result, error) { return s.Apply(ctx, ops) })
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
		if object, ok := now.Configs.Get(key.Path()); ok {
			stored[key] = object
		}
	}
	stamp := plan.Stamp{Now: s.now(), NewUID: uuid.NewString, Domain: s.domain}
	steps, err := batch.Decide(stored, stamp)
	if err != nil {
		return "", nil, err
	}
	if err := s.checkLeases(steps); err != nil {
		return "", nil, err
	}
	if plan.Changes(steps) {
		if now, err = s.advance(ctx, now, steps); err != nil {
			return "", nil, fmt.Errorf("%w: nothing was written: %w", storage.ErrUnavailable, err)
		}
		s.record(now.revision, steps, storage.OriginOf(ctx), stamp.Now)
		s.move(steps)
	}
	return version(now.revision), plan.Results(steps, version(now.revision)), nil
}

// advance applies steps to now and publishes the result, or fails and changes nothing. The
// caller holds mu.
func (s *Store) advance(ctx context.Context, now *state, steps []plan.Step) (*state, error) {
	next := &state{revision: now.revision + 1, Content: now.Content, superseded: make(chan struct{})}
	for _, step := range steps {
		switch step.Outcome {
		case storage.Unchanged:
		case storage.Deleted:
			next.Configs = next.Configs.Delete(step.Key.Path())
		default:
			object := step.After.Clone()
			object.ResourceVersion = version(next.revision)
			next.Configs = next.Configs.Set(step.Key.Path(), object)
		}
	}
	if s.ranges.Enabled() {
		if err := s.allot(ctx, next, address.Claims(steps)); err != nil {
			return nil, err
		}
	}
	s.states.add(next)
	s.current.Store(next)
	close(now.superseded)
	return next, nil
}

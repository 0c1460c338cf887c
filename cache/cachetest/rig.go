package cachetest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// patience is how long a test waits for a condition. Only a test that fails waits so
// long.
const patience = 30 * time.Second

// Cache is what the suite needs of a cache: the contract, and the history of the
// embedded Feed.
type Cache interface {
	cache.ConfigStoreCache
	Lag() int64
	At(revision int64) (*cache.Snapshot, bool)
	Since(ctx context.Context, revision int64) (*cache.Snapshot, bool)
	Next(ctx context.Context, after *cache.Snapshot) (*cache.Snapshot, error)
	Await(ctx context.Context, revision int64) (*cache.Snapshot, error)
}

// Store is the source of a cache under test. Its versions are revisions as decimal
// strings, unless the Subject has Settled.
type Store interface {
	storage.ConfigStore
	storage.Batcher
}

// Subject is a cache with the Pilot schemas, its store and its worker. Neither the cache
// nor the worker runs yet.
type Subject struct {
	Cache  Cache
	Store  Store
	Worker *cache.Worker
	// Settled waits until the cache shows a version of the store, or a later one, and
	// returns the snapshot. It is nil for a cache whose revisions are the versions of the
	// store. A cache with revisions of its own may skip versions that nobody waits for.
	Settled func(ctx context.Context, version string) (*cache.Snapshot, error)
	// ReadOnly says that the cache refuses mutations.
	ReadOnly bool
	// OneByOne says that the source tells the changes of one revision one by one, as
	// Kubernetes does, which has no batches. The suite then leaves out what it asks of them.
	OneByOne bool
}

// Rig runs a Subject.
type Rig struct {
	Subject
	t testing.TB
}

// NewRig returns a rig for a subject, which Start starts.
func NewRig(t testing.TB, s Subject) *Rig { return &Rig{Subject: s, t: t} }

// Start runs the worker and the cache until stop is called or the test ends,
// and waits for HasSynced.
func (r *Rig) Start() (stop func()) {
	r.t.Helper()
	stop = r.Launch()
	r.Eventually("HasSynced", r.Cache.HasSynced)
	return stop
}

// Launch is Start without the wait.
func (r *Rig) Launch() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for name, run := range map[string]func(context.Context) error{"worker": r.Worker.Run, "cache": r.Cache.Run} {
		running.Go(func() {
			if err := run(ctx); err != nil {
				r.t.Errorf("%s: Run = %v, want nil at the end of its context", name, err)
			}
		})
	}
	stop = func() { cancel(); running.Wait() }
	r.t.Cleanup(stop)
	return stop
}

// Eventually waits until a condition holds. It sleeps between two checks, so that
// parallel tests can run.
func (r *Rig) Eventually(what string, holds func() bool) {
	r.t.Helper()
	end := time.Now().Add(patience)
	for pause := 50 * time.Microsecond; !holds(); pause = min(2*pause, 5*time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("%s did not come true in %v", what, patience)
		}
		time.Sleep(pause)
	}
}

// Handler registers a handler.
func (r *Rig) Handler(kind config.GroupVersionKind, handler cache.Handler) {
	r.t.Helper()
	if err := r.Cache.RegisterEventHandler(kind, handler); err != nil {
		r.t.Fatal(err)
	}
}

// Quiesce waits until the worker has done the present tasks.
func (r *Rig) Quiesce() {
	done := make(chan struct{})
	r.Worker.Post(new(byte), func() { r.Worker.Then(func() { close(done) }) })
	<-done
}

// Block keeps the worker busy until the returned function is called.
func (r *Rig) Block() (release func()) {
	busy, gate := make(chan struct{}), make(chan struct{})
	r.Worker.Post(new(byte), func() { close(busy); <-gate })
	<-busy
	return sync.OnceFunc(func() { close(gate) })
}

// Await waits until the newest snapshot is at a revision or beyond.
func (r *Rig) Await(revision string) *cache.Snapshot {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	var snapshot *cache.Snapshot
	var err error
	if r.Settled != nil {
		snapshot, err = r.Settled(ctx, revision)
	} else {
		snapshot, err = r.Cache.Await(ctx, Revision(r.t, revision))
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return snapshot
}

// Settle waits until the handlers have seen a revision.
func (r *Rig) Settle(revision string) {
	r.t.Helper()
	shown := r.Await(revision).Revision()
	if r.Settled == nil {
		shown = Revision(r.t, revision)
	}
	r.Eventually("Handled at "+revision, func() bool {
		r.Quiesce()
		return r.Cache.Handled().Revision() >= shown
	})
}

// Apply applies a batch to the store and returns its revision.
func (r *Rig) Apply(ops ...storage.Op) string {
	r.t.Helper()
	revision, _, err := r.Store.Apply(r.t.Context(), ops)
	if err != nil {
		r.t.Fatal(err)
	}
	return revision
}

// Put stores a service entry with the content of a round, and returns the revision.
func (r *Rig) Put(namespace, name string, round int) string {
	r.t.Helper()
	return r.Apply(Put(namespace, name, round))
}

// Remove deletes a service entry and returns the revision.
func (r *Rig) Remove(namespace, name string) string {
	r.t.Helper()
	return r.Apply(Remove(namespace, name))
}

// Equal fails the test unless the cache, once it is at the revision of the store, has
// the same objects as a fresh list of the store.
func (r *Rig) Equal() {
	r.t.Helper()
	want := Digest(r.t, r.Store)
	r.Await(r.Store.Version())
	if got := Digest(r.t, r.Cache); got != want {
		r.t.Fatalf("the cache at revision %s differs from the store", r.Cache.Version())
	}
}

// Put returns the operation of Rig.Put.
func Put(namespace, name string, round int) storage.Op {
	return storage.Op{Verb: storage.Put, Config: ServiceEntry(namespace, name, round)}
}

// Remove returns the operation of Rig.Remove.
func Remove(namespace, name string) storage.Op {
	return storage.Op{Verb: storage.Delete, Key: Key(namespace, name)}
}

// Key returns the key of a service entry.
func Key(namespace, name string) config.Key {
	return config.Key{Kind: schema.ServiceEntry, Namespace: namespace, Name: name}
}

// ServiceEntry makes a service entry whose content shows the round.
func ServiceEntry(namespace, name string, round int) *config.Config {
	return &config.Config{
		Meta: config.Meta{
			GroupVersionKind: schema.ServiceEntry, Namespace: namespace, Name: name,
			Labels: map[string]string{"round": strconv.Itoa(round)},
		},
		Spec: &networking.ServiceEntry{
			Hosts:      []string{name + "." + namespace + ".example"},
			Ports:      []*networking.ServicePort{{Number: 80, Name: "http", Protocol: "HTTP"}},
			Resolution: networking.ServiceEntry_STATIC,
			Endpoints:  []*networking.WorkloadEntry{{Address: fmt.Sprintf("10.0.%d.%d", round/250%250, round%250+1)}},
		},
	}
}

// Round returns the round of an object made by ServiceEntry, "-" for nil.
func Round(c *config.Config) string {
	if c == nil {
		return "-"
	}
	return c.Labels["round"]
}

// number returns the round of an object as a number.
func number(c *config.Config) int {
	n, _ := strconv.Atoi(Round(c))
	return n
}

// Revision parses a version that is a revision.
func Revision(t testing.TB, version string) int64 {
	t.Helper()
	revision, err := strconv.ParseInt(version, 10, 64)
	if err != nil {
		t.Fatalf("version %q is no revision", version)
	}
	return revision
}

// Digest returns a hash over all objects of a store or cache, with their versions: it is
// equal if both hold the same.
func Digest(t testing.TB, store storage.ConfigStore) string {
	t.Helper()
	hash := sha256.New()
	for _, kind := range store.Schemas().All() {
		objects, err := store.List(t.Context(), kind.GroupVersionKind, "")
		if err != nil {
			t.Fatal(err)
		}
		for _, object := range objects {
			hash.Write(bytesOf(t, object))
		}
	}
	return hex.EncodeToString(hash.Sum(nil))
}

func bytesOf(t testing.TB, c *config.Config) []byte {
	t.Helper()
	spec, err := config.MarshalSpec(c.Spec, nil)
	if err != nil {
		t.Fatal(err)
	}
	// fmt prints maps in key order.
	return fmt.Appendf(nil, "%q %q %q %d %d %q %q %q\n", c.Meta.Key().Path(), c.ResourceVersion, c.UID, c.Generation,
		c.CreationTimestamp.Unix(), c.Labels, c.Annotations, spec)
}

// record records the events of handlers, one line each.
type record struct {
	mu    sync.Mutex
	lines []string
}

func (r *record) add(line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, line)
}

// take returns the lines and forgets them.
func (r *record) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	lines := slices.Clone(r.lines)
	r.lines = nil
	return lines
}

// Describe describes an event in a line, by rounds: "update shop/reviews 1>2".
func Describe(old, curr *config.Config, event cache.Event) string {
	object := curr
	if object == nil {
		object = old
	}
	return fmt.Sprintf("%s %s/%s %s>%s", event, object.Namespace, object.Name, Round(old), Round(curr))
}

package aggregate_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cache/aggregate"
	"github.com/portolan-mesh/portolan/cache/cachetest"
	cachememory "github.com/portolan-mesh/portolan/cache/memory"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/memory"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a read-only source whose snapshots a test publishes. Its versions look like
// revisions of the store.
type fake struct {
	*cache.Feed
	end chan error // ends Run
	// reading says whether it is being read; nil if it is not.
	reading func() bool

	mu       sync.Mutex // guards the fields below
	revision int64
	configs  pmap.Map[*config.Config]
	degraded error
}

func newFake() *fake {
	return &fake{Feed: cache.NewFeed(cache.FeedOptions{Worker: cache.NewWorker(), Schemas: schema.Pilot()}), end: make(chan error, 1)}
}

func (f *fake) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-f.end:
		return err
	}
}

func (f *fake) Reading() bool { return f.reading != nil && f.reading() }

func (f *fake) Degraded() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.degraded
}

func (f *fake) degrade(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.degraded = err
}

// publish applies operations to the objects and publishes the result.
func (f *fake) publish(ops ...storage.Op) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.revision++
	for _, op := range ops {
		path := op.Target().Path()
		if op.Config == nil {
			f.configs = f.configs.Delete(path)
			continue
		}
		object := *op.Config
		object.ResourceVersion = fmt.Sprint(f.revision)
		f.configs = f.configs.Set(path, &object)
	}
	f.Publish(cache.NewSnapshot(f.revision, f.configs))
}

// bed is an aggregate of a store in memory, between two sources.
type bed struct {
	*cachetest.Rig
	all          *aggregate.Cache
	above, below *fake
	store        *cachememory.Cache
}

func open(t testing.TB, options ...func(*aggregate.Options)) *bed {
	b := &bed{above: newFake(), below: newFake()}
	store, worker := memory.New(schema.Pilot(), memory.Options{}), cache.NewWorker()
	b.store = cachememory.New(store, cachememory.Options{Worker: cache.NewWorker()})
	o := aggregate.Options{
		Worker: worker, Store: b.store, FirstSync: time.Hour,
		Sources: []aggregate.Source{{Name: "above", Cache: b.above}, {Name: "store", Cache: b.store}, {Name: "below", Cache: b.below}},
	}
	for _, set := range options {
		set(&o)
	}
	var err error
	if b.all, err = aggregate.MakeCache(o); err != nil {
		t.Fatal(err)
	}
	b.Rig = cachetest.NewRig(t, cachetest.Subject{Cache: b.all, Store: store, Worker: worker})
	return b
}

// start is Start after both sources have published empty snapshots.
func (b *bed) start() {
	b.above.publish()
	b.below.publish()
	b.Start()
}

// awaitObject waits until the cache has the given round of an object from a source. "" is the
// store; round "-" is no object.
func (b *bed) awaitObject(key config.Key, source, round string) {
	b.Eventually(fmt.Sprintf("%s has round %s of %q", key, round, source), func() bool {
		b.Quiesce()
		object := b.all.Handled().Get(key)
		return cachetest.Round(object) == round && (object == nil || object.Source == source)
	})
}

func TestCache(t *testing.T) {
	t.Parallel()
	cachetest.Run(t, func(t testing.TB) cachetest.Subject {
		b := open(t)
		b.above.publish()
		b.below.publish()
		return b.Subject
	})
}

// TestTheFirstSourceWins: of several objects of one key, the one of the first source
// counts, and handlers get changes of that one only.
func TestTheFirstSourceWins(t *testing.T) {
	t.Parallel()
	b := open(t)
	var events []string // by the worker
	b.Handler(schema.ServiceEntry, func(o, c *config.Config, e cache.Event) { events = append(events, cachetest.Describe(o, c, e)) })
	b.start()
	key := cachetest.Key("a", "x")
	put := func(round int) storage.Op { return cachetest.Put("a", "x", round) }
	b.below.publish(put(1))
	b.awaitObject(key, "below", "1")
	b.Put("a", "x", 2)
	b.awaitObject(key, "", "2")
	b.below.publish(put(3)) // is shadowed
	b.Eventually("the shadow is known", func() bool {
		s := b.all.Snapshot().Shadows().Value(key.Path())
		return s != nil && cachetest.Round(s.Objects[1]) == "3" && s.Objects[1].Source == "below"
	})
	b.above.publish(put(4))
	b.awaitObject(key, "above", "4")
	b.Settle(b.Remove("a", "x")) // is shadowed too
	b.above.publish(cachetest.Remove("a", "x"))
	b.awaitObject(key, "below", "3")
	b.below.publish(cachetest.Remove("a", "x"))
	b.awaitObject(key, "", "-")
	if n := b.all.Snapshot().Shadows().Len(); n != 0 {
		t.Errorf("%d keys are shadowed, want none", n)
	}
	want := []string{"add a/x ->1", "update a/x 1>2", "update a/x 2>4", "update a/x 4>3", "delete a/x 3>-"}
	b.Quiesce()
	if d := cmp.Diff(want, events); d != "" {
		t.Errorf("events (-want +got):\n%s", d)
	}
}

// TestSourcesAreFollowedAtTheRevisionOfTheStore: another source changes no revision. A
// follower that resumes at a revision gets what other sources changed at it.
func TestSourcesAreFollowedAtTheRevisionOfTheStore(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.start()
	revision := b.Put("a", "x", 1)
	b.awaitObject(cachetest.Key("a", "x"), "", "1")
	for round := range 5 {
		b.below.publish(cachetest.Put("b", "y", round))
		b.awaitObject(cachetest.Key("b", "y"), "below", fmt.Sprint(round))
	}
	at := cachetest.Revision(t, revision)
	if newest := b.all.Snapshot(); newest.Revision() != at {
		t.Errorf("the cache is at %d, want %d", newest.Revision(), at)
	}
	last, ok := b.all.Since(t.Context(), at)
	if !ok {
		t.Fatalf("nothing is known before %d", at)
	}
	var got []string
	for b.all.Snapshot() != last {
		next, err := b.all.Next(t.Context(), last)
		if err != nil {
			t.Fatal(err)
		}
		for c := range pmap.Diff(last.Configs(), next.Configs()) {
			got = append(got, c.New.Name+" "+cachetest.Round(c.New))
		}
		last = next
	}
	if d := cmp.Diff([]string{"x 1", "y 0", "y 1", "y 2", "y 3", "y 4"}, got); d != "" {
		t.Errorf("changes (-want +got):\n%s", d)
	}
	y := cachetest.Key("b", "y")
	if version, err := b.all.GetResourceAtVersion(t.Context(), revision, y); err != nil || version != b.all.Snapshot().Get(y).ResourceVersion {
		t.Errorf("the version of %s was %q, %v", y, version, err)
	}
}

// TestTheFirstRevisionCanBeResumedFrom: the store provides the configuration before it,
// and the objects of other sources come again.
func TestTheFirstRevisionCanBeResumedFrom(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.Put("a", "old", 1)
	revision := b.Put("a", "new", 1)
	b.above.publish()
	b.below.publish(cachetest.Put("b", "y", 1))
	b.Start()
	before, ok := b.all.Since(t.Context(), cachetest.Revision(t, revision))
	if !ok || before.Configs().Len() != 1 || before.Get(cachetest.Key("a", "old")) == nil {
		t.Fatalf("before %s: %d objects, %v; want the old one", revision, before.Configs().Len(), ok)
	}
	next, err := b.all.Next(t.Context(), before)
	if err != nil || next.Configs().Len() != 3 {
		t.Errorf("then come %d objects, %v; want 3", next.Configs().Len(), err)
	}
}

// TestARandomHistoryIsMerged: the cache equals a fresh merge, the events add up to it,
// and so do the snapshots of a follower.
func TestARandomHistoryIsMerged(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	b := open(t)
	fold := b.Fold()
	b.start()
	last := b.all.Snapshot()
	names := []string{"a", "b", "c", "d", "e", "f"}
	for round := range 300 {
		ops := map[string]storage.Op{}
		source := random.IntN(3)
		for range 1 + random.IntN(3) {
			name := names[random.IntN(len(names))]
			ops[name] = cachetest.Put("a", name, round)
			if random.IntN(2) == 0 {
				ops[name] = cachetest.Remove("a", name)
			}
		}
		var batch []storage.Op
		for name, op := range ops {
			_, err := b.Store.Get(t.Context(), schema.ServiceEntry, name, "a")
			if source != 0 || op.Config != nil || err == nil {
				batch = append(batch, op)
			}
		}
		switch source {
		case 0:
			if len(batch) > 0 {
				b.Apply(batch...)
			}
		case 1:
			b.above.publish(batch...)
		case 2:
			b.below.publish(batch...)
		}
		if round%10 == 9 {
			b.merged()
		}
	}
	b.merged()
	b.Settle(b.Store.Version())
	fold.Check()
	for last != b.all.Snapshot() {
		next, err := b.all.Next(t.Context(), last)
		if err != nil {
			t.Fatal(err)
		}
		if next.Revision() == last.Revision() && next.Content() == last.Content() {
			t.Errorf("revision %d came twice", next.Revision())
		}
		last = next
	}
}

// merged waits until the cache equals a fresh merge of its sources.
func (b *bed) merged() {
	b.Await(b.Store.Version())
	b.Eventually("the cache equals a merge from nothing", func() bool {
		want := map[string][]string{}
		for _, source := range []struct {
			name string
			of   interface{ Snapshot() *cache.Snapshot }
		}{{"above", b.above}, {"", b.store}, {"below", b.below}} {
			for path, object := range source.of.Snapshot().Configs().All() {
				want[path] = append(want[path], source.name+" "+object.ResourceVersion)
			}
		}
		got, snapshot := map[string][]string{}, b.all.Snapshot()
		for path, object := range snapshot.Configs().All() {
			objects := []*config.Config{object}
			if s := snapshot.Shadows().Value(path); s != nil {
				objects = s.Objects
			}
			for _, o := range objects {
				got[path] = append(got[path], o.Source+" "+o.ResourceVersion)
			}
		}
		return cmp.Equal(want, got)
	})
}

// TestAFirstStartWaitsForASource: but not for ever.
func TestAFirstStartWaitsForASource(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.above.publish()
	b.Put("a", "x", 1)
	b.Launch()
	b.Eventually("the store is read", func() bool { return b.store.Snapshot() != nil })
	if b.all.Snapshot() != nil || b.all.HasSynced() {
		t.Error("the cache did not wait for a source")
	}
	if err := b.all.Degraded(); err == nil || !strings.Contains(err.Error(), "source below: it has not been read since ") {
		t.Errorf("Degraded = %v", err)
	}
	b.below.publish(cachetest.Put("b", "y", 1))
	b.Eventually("HasSynced", b.all.HasSynced)
	if n := b.all.Handled().Configs().Len(); n != 2 {
		t.Errorf("%d objects are served first, want 2", n)
	}
	if err := b.all.Degraded(); err != nil {
		t.Errorf("Degraded = %v", err)
	}

	late := open(t, func(o *aggregate.Options) { o.FirstSync = time.Millisecond })
	late.Put("a", "x", 1)
	late.Start()
	late.below.publish(cachetest.Put("b", "y", 1))
	late.awaitObject(cachetest.Key("b", "y"), "below", "1")
}

// TestAFirstStartWaitsLongerForASourceThatIsRead: until it is not read any more, or has taken too long.
func TestAFirstStartWaitsLongerForASourceThatIsRead(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ read, asked int32 }{
		"no more":  {read: 2, asked: 3},
		"too long": {read: 1000, asked: 59},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := open(t, func(o *aggregate.Options) { o.FirstSync = 5 * time.Millisecond })
			var asked atomic.Int32
			b.below.reading = func() bool {
				if b.all.Snapshot() != nil {
					t.Error("the cache did not wait for a source that is being read")
				}
				return asked.Add(1) <= test.read
			}
			b.above.publish()
			b.Put("a", "x", 1)
			b.Start()
			b.Eventually("HasSynced", b.all.HasSynced)
			if n := asked.Load(); n != test.asked {
				t.Errorf("the cache started after %d questions, want %d", n, test.asked)
			}
			b.below.publish(cachetest.Put("b", "y", 1))
			b.awaitObject(cachetest.Key("b", "y"), "below", "1")
		})
	}
}

// TestASourceThatFailsKeepsItsObjects: and delays nothing.
func TestASourceThatFailsKeepsItsObjects(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.start()
	b.below.publish(cachetest.Put("b", "y", 1))
	b.awaitObject(cachetest.Key("b", "y"), "below", "1")
	b.below.end <- errors.New("the disk is gone")
	b.above.degrade(errors.New("the peer is silent"))
	b.Eventually("Degraded names both", func() bool {
		err := b.all.Degraded()
		return err != nil && strings.Contains(err.Error(), "the disk is gone") && strings.Contains(err.Error(), "source above: the peer is silent")
	})
	b.Put("a", "x", 1)
	b.awaitObject(cachetest.Key("a", "x"), "", "1")
	b.awaitObject(cachetest.Key("b", "y"), "below", "1")
	statuses := b.all.Statuses()
	if len(statuses) != 3 || !statuses[1].Writable || statuses[2].Objects["ServiceEntry"] != 1 || statuses[2].Err == nil || statuses[2].Changed.IsZero() {
		t.Errorf("Statuses = %+v", statuses)
	}
}

// TestSourcesComeAndGo while the cache runs.
func TestSourcesComeAndGo(t *testing.T) {
	t.Parallel()
	b := open(t)
	fold := b.Fold()
	b.start()
	b.Put("a", "x", 1)
	more := newFake()
	more.publish(cachetest.Put("a", "x", 7), cachetest.Put("a", "y", 7), cachetest.Put("a", "z", 7))
	if err := b.all.Add(aggregate.Source{Name: "more", Cache: more}); err != nil {
		t.Fatal(err)
	}
	if b.all.Add(aggregate.Source{Name: "more", Cache: newFake()}) == nil {
		t.Error("two sources have one name")
	}
	b.awaitObject(cachetest.Key("a", "z"), "more", "7")
	b.awaitObject(cachetest.Key("a", "x"), "", "1")
	if err := b.all.Remove("more"); err != nil {
		t.Fatal(err)
	}
	b.awaitObject(cachetest.Key("a", "z"), "", "-")
	b.awaitObject(cachetest.Key("a", "x"), "", "1")
	if b.all.Remove("more") == nil || b.all.Remove("store") == nil {
		t.Error("what is not there, or is the store, was removed")
	}
	fold.Check()
}

// TestWrites: the store accepts writes to keys that it wins, and the error for other
// keys names their source.
func TestWrites(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.start()
	b.above.publish(cachetest.Put("a", "up", 1))
	b.below.publish(cachetest.Put("a", "down", 1), cachetest.Put("a", "kept", 1))
	b.awaitObject(cachetest.Key("a", "up"), "above", "1")
	b.awaitObject(cachetest.Key("a", "kept"), "below", "1")
	ctx := t.Context()
	entry := func(name string) *config.Config { return cachetest.ServiceEntry("a", name, 2) }
	_, create := b.all.Create(ctx, entry("up"))
	_, update := b.all.Update(ctx, entry("down"))
	_, remove := b.all.Delete(ctx, schema.ServiceEntry, "down", "a", "")
	_, _, apply := b.all.Apply(ctx, []storage.Op{cachetest.Put("a", "new", 2), cachetest.Put("a", "up", 2), cachetest.Remove("a", "kept")})
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"create": {create, "create serviceentry/a/up: read only: the object comes from the source above"},
		"update": {update, "update serviceentry/a/down: read only: the object comes from the source below"},
		"delete": {remove, "delete serviceentry/a/down: read only"},
		"apply":  {apply, "delete serviceentry/a/kept: read only"},
	} {
		if !errors.Is(test.err, storage.ErrReadOnly) || !strings.Contains(test.err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, test.err, test.want)
		}
	}
	if _, err := b.all.Create(ctx, entry("down")); err != nil {
		t.Errorf("what shadows a source behind the store: %v", err)
	}
	b.awaitObject(cachetest.Key("a", "down"), "", "2")
	if _, err := b.all.Delete(ctx, schema.ServiceEntry, "down", "a", ""); err != nil {
		t.Error(err)
	}
	b.awaitObject(cachetest.Key("a", "down"), "below", "1")
}

// TestObjectsOfASource: Objects returns all objects of a source, and which source
// shadows each.
func TestObjectsOfASource(t *testing.T) {
	t.Parallel()
	b := open(t, func(o *aggregate.Options) {
		o.Sources[2].Place = func(key config.Key) string { return key.Name + ".yaml" }
	})
	b.start()
	b.below.publish(cachetest.Put("a", "x", 1), cachetest.Put("a", "y", 1), cachetest.Put("a", "z", 1))
	b.above.publish(cachetest.Put("a", "y", 1))
	b.Put("a", "x", 2)
	b.awaitObject(cachetest.Key("a", "x"), "", "2")
	b.awaitObject(cachetest.Key("a", "y"), "above", "1")
	b.awaitObject(cachetest.Key("a", "z"), "below", "1")
	list := func(source string) (out []string) {
		objects, known := b.all.Objects(source)
		if !known {
			t.Fatalf("%s is not known", source)
		}
		for _, o := range objects {
			out = append(out, strings.TrimSpace(fmt.Sprintf("%s %s %s", o.Name, o.Place, o.By)))
			if o.Shadowed != (o.By != "") {
				t.Errorf("%s: %+v", source, o)
			}
		}
		return out
	}
	for source, want := range map[string][]string{
		"above": {"y"}, "store": {"x"}, "below": {"x x.yaml store", "y y.yaml above", "z z.yaml"},
	} {
		if d := cmp.Diff(want, list(source)); d != "" {
			t.Errorf("%s: %s", source, d)
		}
	}
	if _, known := b.all.Objects("none"); known {
		t.Error("a source that does not exist is known")
	}
}

// TestTheMapOfTheStoreIsShared: as long as no other source has objects.
func TestTheMapOfTheStoreIsShared(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.start()
	b.Settle(b.Put("a", "x", 1))
	b.Eventually("the maps are one", func() bool { return b.all.Snapshot().Configs() == b.store.Snapshot().Configs() })
	b.below.publish(cachetest.Put("b", "y", 1))
	b.awaitObject(cachetest.Key("b", "y"), "below", "1")
	b.below.publish(cachetest.Remove("b", "y"))
	b.awaitObject(cachetest.Key("b", "y"), "", "-")
	b.Settle(b.Put("a", "x", 2))
	b.Eventually("the maps are one again", func() bool { return b.all.Snapshot().Configs() == b.store.Snapshot().Configs() })
}

func BenchmarkCache(b *testing.B) {
	over := func(b testing.TB, store *memory.Store, beside int) cachetest.Subject {
		worker, other := cache.NewWorker(), newFake()
		var ops []storage.Op
		for i := range beside {
			ops = append(ops, cachetest.Put("beside", fmt.Sprintf("object-%06d", i), 0))
		}
		other.publish(ops...)
		stored := cachememory.New(store, cachememory.Options{Worker: cache.NewWorker()})
		all, err := aggregate.MakeCache(aggregate.Options{
			Worker: worker, Store: stored, FirstSync: time.Hour,
			Sources: []aggregate.Source{{Name: "store", Cache: stored}, {Name: "files", Cache: other}},
		})
		if err != nil {
			b.Fatal(err)
		}
		return cachetest.Subject{Cache: all, Store: store, Worker: worker}
	}
	for _, beside := range []int{0, 10_000} {
		b.Run(fmt.Sprint("beside ", beside), func(b *testing.B) {
			cachetest.Benchmark(b,
				func(b testing.TB) cachetest.Subject {
					return over(b, memory.New(schema.Pilot(), memory.Options{}), beside)
				},
				func(s cachetest.Subject) cachetest.Subject { return over(b, s.Store.(*memory.Store), beside) })
		})
	}
}

// TestWhatIsShadowedMayGo: the store may delete and restore its object behind another
// source's, and change nothing else of that key.
func TestWhatIsShadowedMayGo(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.start()
	key := cachetest.Key("a", "x")
	b.above.publish(cachetest.Put("a", "x", 1))
	b.awaitObject(key, "above", "1")
	permitted := func() (out []storage.Verb) {
		for _, verb := range []storage.Verb{storage.Create, storage.Update, storage.Put, storage.Restore, storage.Delete} {
			err := b.all.Permit(storage.Op{Verb: verb, Key: key})
			if err == nil {
				out = append(out, verb)
			} else if !errors.Is(err, storage.ErrReadOnly) {
				t.Errorf("%s: %v", verb, err)
			}
		}
		return out
	}
	if got := permitted(); got != nil {
		t.Errorf("of what the store does not have it may do %v", got)
	}
	b.Settle(b.Put("a", "x", 2))
	b.Eventually("the object of the store is known", func() bool { return b.all.Snapshot().Stored(key) != nil })
	if d := cmp.Diff([]storage.Verb{storage.Restore, storage.Delete}, permitted()); d != "" {
		t.Errorf("what the store may do (-want +got):\n%s", d)
	}
	if beside := b.all.Snapshot().Beside(key); beside == nil || beside.Source != "above" {
		t.Errorf("beside is %+v", beside)
	}
}

package cachetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// Run runs the suite. Each call of open makes a subject with an empty store of its own.
func Run(t *testing.T, open func(testing.TB) Subject) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, *Rig)
	}{
		{"the initial list is told as adds", initialList},
		{"HasSynced comes after handlers and hooks", hasSynced},
		{"an empty store syncs", emptyStore},
		{"registration ends with Run", registration},
		{"updates and deletes carry the old object", oldObjects},
		{"an unchanged apply is no event", unchanged},
		{"the cache is as fresh as the event", freshness},
		{"what the worker missed is folded", folding},
		{"a blocked worker does not hold up readers", blockedWorker},
		{"a revision is never split", neverSplit},
		{"followers get every revision", followers},
		{"mutations go to the store", mutations},
		{"random histories add up", randomHistory},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(t, NewRig(t, open(t)))
		})
	}
}

// look is the pause of a polling reader, so that writers get the processor.
const look = 100 * time.Microsecond

func expect(t *testing.T, want, got []string) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Fatalf("events (-want +got):\n%s", d)
	}
}

// recordAll registers a handler for service entries that records its events.
func (r *Rig) recordAll() *record {
	r.t.Helper()
	told := &record{}
	r.Handler(schema.ServiceEntry, func(o, c *config.Config, e cache.Event) { told.add(Describe(o, c, e)) })
	return told
}

func initialList(t *testing.T, r *Rig) {
	r.Apply(Put("b", "x", 1), Put("a", "y", 1), Put("a", "x", 1))
	events := &record{}
	for i := range 3 {
		r.Handler(schema.ServiceEntry, func(o, c *config.Config, e cache.Event) {
			events.add(strconv.Itoa(i) + " " + Describe(o, c, e))
		})
	}
	r.Handler(schema.Gateway, func(*config.Config, *config.Config, cache.Event) { t.Error("told of another kind") })
	r.Start()
	var want []string
	for _, key := range []string{"a/x", "a/y", "b/x"} {
		for i := range 3 {
			want = append(want, fmt.Sprintf("%d add %s ->1", i, key))
		}
	}
	expect(t, want, events.take())
	r.Equal()
}

func hasSynced(t *testing.T, r *Rig) {
	r.Put("a", "x", 1)
	var early, handled, committed atomic.Bool
	r.Handler(schema.ServiceEntry, func(*config.Config, *config.Config, cache.Event) {
		handled.Store(true)
		early.Store(early.Load() || r.Cache.HasSynced())
	})
	r.Worker.AtTaskEnd(func() {
		if handled.Load() && !committed.Load() {
			early.Store(early.Load() || r.Cache.HasSynced() || r.Cache.Handled().Get(Key("a", "x")) == nil)
			committed.Store(true)
		}
	})
	r.Start()
	if early.Load() || !handled.Load() || !committed.Load() {
		t.Errorf("early = %v, handled = %v, committed = %v", early.Load(), handled.Load(), committed.Load())
	}
}

func emptyStore(t *testing.T, r *Rig) {
	told := r.recordAll()
	if r.Cache.HasSynced() || r.Cache.Snapshot().Configs().Len() != 0 {
		t.Error("a cache that was not run claims something")
	}
	r.Start()
	expect(t, nil, told.take())
	r.Settle(r.Put("a", "x", 1))
	expect(t, []string{"add a/x ->1"}, told.take())
}

func registration(t *testing.T, r *Rig) {
	none := func(*config.Config, *config.Config, cache.Event) {}
	unknown := config.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Unknown"}
	if err := r.Cache.RegisterEventHandler(unknown, none); err == nil {
		t.Error("a handler of an unknown kind was let in")
	}
	r.Start()
	if err := r.Cache.RegisterEventHandler(schema.ServiceEntry, none); err == nil {
		t.Error("a handler was let in after Run")
	}
	if err := r.Cache.Run(t.Context()); err == nil {
		t.Error("a second Run was let in")
	}
}

func oldObjects(t *testing.T, r *Rig) {
	var known *config.Config
	events := &record{}
	r.Handler(schema.ServiceEntry, func(o, c *config.Config, e cache.Event) {
		if o != known {
			t.Errorf("%s: the old object is not what was told before", Describe(o, c, e))
		}
		known = c
		events.add(Describe(o, c, e))
	})
	r.Start()
	r.Settle(r.Put("a", "x", 1))
	r.Settle(r.Put("a", "x", 2))
	r.Settle(r.Remove("a", "x"))
	expect(t, []string{"add a/x ->1", "update a/x 1>2", "delete a/x 2>-"}, events.take())
}

func unchanged(t *testing.T, r *Rig) {
	told := r.recordAll()
	r.Start()
	r.Settle(r.Put("a", "x", 1))
	r.Settle(r.Put("a", "x", 1))
	r.Settle(r.Put("a", "y", 1))
	expect(t, []string{"add a/x ->1", "add a/y ->1"}, told.take())
}

func freshness(t *testing.T, r *Rig) {
	r.Handler(schema.ServiceEntry, func(o, c *config.Config, e cache.Event) {
		object, err := r.Cache.Get(t.Context(), schema.ServiceEntry, "x", "a")
		switch {
		case err != nil && !errors.Is(err, storage.ErrNotFound):
			t.Error(err)
		case err == nil && c != nil && number(object) < number(c):
			t.Errorf("%s: the cache still has round %s", Describe(o, c, e), Round(object))
		case err == nil && c == nil && number(object) <= number(o):
			t.Errorf("%s: the cache still has round %s", Describe(o, c, e), Round(object))
		}
	})
	r.Start()
	var last string
	for i := range 60 {
		last = r.Put("a", "x", i)
		if i%7 == 6 {
			last = r.Remove("a", "x")
		}
	}
	r.Settle(last)
}

func folding(t *testing.T, r *Rig) {
	events := r.recordAll()
	r.Apply(Put("a", "again", 1), Put("a", "gone", 1), Put("a", "kept", 1))
	r.Start()
	events.take()
	release := r.Block()
	defer release()
	r.Put("a", "fleeting", 2)
	r.Remove("a", "fleeting")
	r.Remove("a", "again")
	r.Put("a", "again", 2)
	r.Put("a", "gone", 2)
	last := r.Remove("a", "gone")
	r.Await(last)
	if lag := r.Cache.Lag(); lag < 1 || r.Cache.Handled().Revision() >= r.Cache.Snapshot().Revision() {
		t.Errorf("lag %d, handled %s, newest %s", lag, r.Cache.Handled().Version(), r.Cache.Version())
	}
	expect(t, nil, events.take())
	release()
	r.Settle(last)
	expect(t, []string{"update a/again 1>2", "delete a/gone 1>-"}, events.take())
	if lag := r.Cache.Lag(); lag != 0 {
		t.Errorf("lag %d after all was handled", lag)
	}
}

func blockedWorker(t *testing.T, r *Rig) {
	r.Start()
	release := r.Block()
	defer release()
	handled := r.Cache.Handled()
	for i := range 20 {
		r.Await(r.Put("a", "x", i))
		object, err := r.Cache.Get(t.Context(), schema.ServiceEntry, "x", "a")
		if err != nil || Round(object) != strconv.Itoa(i) {
			t.Fatalf("round %d: the cache has %s, %v", i, Round(object), err)
		}
	}
	if r.Cache.Handled() != handled || r.Worker.Len() > 1 {
		t.Errorf("handled moved to %s, %d tasks wait; want it to stay and one to wait", r.Cache.Handled().Version(), r.Worker.Len())
	}
}

// neverSplit has batches change several objects at once. It looks for half a batch in
// the newest snapshot, in what followers get, and in what the handlers have got when
// their task ends.
func neverSplit(t *testing.T, r *Rig) {
	if r.OneByOne {
		return
	}
	const objects, rounds = 12, 60
	batch := func(round int) (ops []storage.Op) {
		for i := range objects {
			if name := fmt.Sprint("x", i); round%5 == 4 {
				ops = append(ops, Remove("a", name))
			} else {
				ops = append(ops, Put("a", name, round))
			}
		}
		return ops
	}
	known := map[string]string{} // rounds by name, as handlers know them; written by the worker
	r.Handler(schema.ServiceEntry, func(o, c *config.Config, _ cache.Event) {
		if c == nil {
			delete(known, o.Name)
		} else {
			known[c.Name] = Round(c)
		}
	})
	r.Worker.AtTaskEnd(func() {
		first, n := "", 0
		for _, round := range known {
			if n++; n > 1 && round != first {
				t.Errorf("handlers know rounds %s and %s when the task ends", first, round)
			}
			first = round
		}
		if n != 0 && n != objects {
			t.Errorf("handlers know %d of %d objects when the task ends", n, objects)
		}
	})
	r.Apply(batch(0)...)
	r.Start()
	var watching sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	watching.Go(func() { // a reader
		for ; ctx.Err() == nil; time.Sleep(look) {
			whole(t, r.Cache.Snapshot(), objects)
			whole(t, r.Cache.Handled(), objects)
		}
	})
	watching.Go(func() { // a follower
		at := r.Cache.Snapshot()
		for {
			next, err := r.Cache.Next(ctx, at)
			if err != nil {
				return
			}
			whole(t, next, objects)
			at = next
		}
	})
	var last string
	for round := 1; round <= rounds; round++ {
		last = r.Apply(batch(round)...)
	}
	r.Settle(last)
	cancel()
	watching.Wait()
}

// whole checks that a snapshot has none of the objects, or all and of the same round.
func whole(t *testing.T, s *cache.Snapshot, objects int) {
	rounds := map[string]int{}
	for c := range s.List(schema.ServiceEntry, "") {
		rounds[Round(c)]++
	}
	for _, n := range rounds {
		if len(rounds) > 1 || n != objects {
			t.Errorf("revision %s has half of a batch: objects by round %v", s.Version(), rounds)
			return
		}
	}
}

func followers(t *testing.T, r *Rig) {
	if r.Settled != nil {
		ownRevisions(t, r)
		return
	}
	before := r.Put("a", "x", 0)
	r.Start()
	at := r.Cache.Snapshot()
	since, ok := r.Cache.Since(t.Context(), Revision(t, before))
	if !ok || since.Get(Key("a", "x")) != nil {
		t.Errorf("Since of the revision just listed = %v, %v; want what was before it", since.Version(), ok)
	}
	const changes = 50
	revisions := make([]string, changes)
	for i := range changes {
		revisions[i] = r.Put("a", "x", i+1)
	}
	for i := 0; i < changes; {
		next, err := r.Cache.Next(t.Context(), at)
		if err != nil {
			t.Fatal(err)
		}
		for change := range pmap.Diff(at.Configs(), next.Configs()) {
			if change.New.ResourceVersion != revisions[i] || next.Version() != revisions[i] || Round(change.New) != strconv.Itoa(i+1) {
				t.Fatalf("change %d came as round %s at %s, want it at %s", i+1, Round(change.New), next.Version(), revisions[i])
			}
			i++
		}
		at = next
	}
	third := Revision(t, revisions[2])
	since, ok = r.Cache.Since(t.Context(), third)
	if !ok || Round(since.Get(Key("a", "x"))) != "2" {
		t.Errorf("Since(%d) has round %s, %v; want 2", third, Round(since.Get(Key("a", "x"))), ok)
	}
	if then, ok := r.Cache.At(third); !ok || Round(then.Get(Key("a", "x"))) != "3" {
		t.Errorf("At(%d) has round %s, %v; want 3", third, Round(then.Get(Key("a", "x"))), ok)
	}
	if _, ok := r.Cache.Since(t.Context(), Revision(t, before)-1); ok {
		t.Error("Since reaches behind the first list")
	}
}

// ownRevisions is followers for a cache with revisions of its own: each change that is
// waited for has its own revision.
func ownRevisions(t *testing.T, r *Rig) {
	r.Put("a", "x", 0)
	r.Start()
	first := r.Cache.Snapshot()
	at := first
	const changes = 20
	for i := range changes {
		shown := r.Await(r.Put("a", "x", i+1))
		next, err := r.Cache.Next(t.Context(), at)
		if err != nil {
			t.Fatal(err)
		}
		if next != shown || next.Revision() != at.Revision()+1 || Round(next.Get(Key("a", "x"))) != strconv.Itoa(i+1) {
			t.Fatalf("change %d came as round %s at %s after %s", i+1, Round(next.Get(Key("a", "x"))), next.Version(), at.Version())
		}
		at = next
	}
	third := first.Revision() + 3
	if since, ok := r.Cache.Since(t.Context(), third); !ok || Round(since.Get(Key("a", "x"))) != "2" {
		t.Errorf("Since(%d) has round %s, %v; want 2", third, Round(since.Get(Key("a", "x"))), ok)
	}
	if then, ok := r.Cache.At(third); !ok || Round(then.Get(Key("a", "x"))) != "3" {
		t.Errorf("At(%d) has round %s, %v; want 3", third, Round(then.Get(Key("a", "x"))), ok)
	}
}

// readOnly is mutations for a cache that refuses them.
func readOnly(t *testing.T, r *Rig) {
	r.Settle(r.Put("a", "x", 1))
	ctx := t.Context()
	_, create := r.Cache.Create(ctx, ServiceEntry("a", "y", 1))
	_, update := r.Cache.Update(ctx, ServiceEntry("a", "x", 2))
	_, remove := r.Cache.Delete(ctx, schema.ServiceEntry, "x", "a", "")
	for verb, err := range map[string]error{"Create": create, "Update": update, "Delete": remove} {
		if !errors.Is(err, storage.ErrReadOnly) {
			t.Errorf("%s: %v, want ErrReadOnly", verb, err)
		}
	}
	object, version := r.Cache.Snapshot().Get(Key("a", "x")), r.Cache.Version()
	if at, err := r.Cache.GetResourceAtVersion(ctx, version, Key("a", "x")); err != nil || at != object.ResourceVersion {
		t.Errorf("the version at %s was %q, %v; want %q", version, at, err, object.ResourceVersion)
	}
}

func mutations(t *testing.T, r *Rig) {
	r.Start()
	if r.ReadOnly {
		readOnly(t, r)
		return
	}
	ctx := t.Context()
	created, err := r.Cache.Create(ctx, ServiceEntry("a", "x", 1))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Cache.Create(ctx, ServiceEntry("a", "x", 1)); !errors.Is(err, storage.ErrExists) {
		t.Errorf("the second Create: %v, want ErrExists", err)
	}
	held := r.Await(created).Get(Key("a", "x"))
	if held == nil || held.ResourceVersion != created {
		t.Fatalf("the cache has %v, want version %s", held, created)
	}
	change := ServiceEntry("a", "x", 2)
	change.ResourceVersion = created
	updated, err := r.Cache.Update(ctx, change)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Cache.Update(ctx, func() *config.Config { c := ServiceEntry("a", "x", 3); c.ResourceVersion = created; return c }()); !errors.Is(err, storage.ErrConflict) {
		t.Errorf("an Update of a stale version: %v, want ErrConflict", err)
	}
	deleted, err := r.Cache.Delete(ctx, schema.ServiceEntry, "x", "a", updated)
	if err != nil {
		t.Fatal(err)
	}
	if gone := r.Await(deleted).Get(Key("a", "x")); gone != nil {
		t.Errorf("the cache still has %v", gone)
	}
	if version, err := r.Cache.GetResourceAtVersion(ctx, created, Key("a", "x")); err != nil || version != created {
		t.Errorf("the version at %s was %q, %v", created, version, err)
	}
}

// randomHistory checks that the events of handlers add up to Handled, that Handled is
// never ahead of Snapshot, and that the cache ends up equal to the store.
func randomHistory(t *testing.T, r *Rig) {
	fold := r.Fold()
	r.Start()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	ctx, cancel := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	watching.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(look) {
			if handled, newest := r.Cache.Handled(), r.Cache.Snapshot(); handled.Revision() > newest.Revision() {
				t.Errorf("handled %s is ahead of %s", handled.Version(), newest.Version())
				return
			}
		}
	})
	for round := range 120 {
		r.Mutate(random, round)
	}
	r.Settle(r.Store.Version())
	cancel()
	watching.Wait()
	r.Equal()
	fold.Check()
}

package mirror_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cache/cachetest"
	"github.com/portolan-mesh/portolan/cache/mirror"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// faulty is a mirror behind a relay, and the events of its handlers.
type faulty struct {
	*cachetest.Rig
	relay  *relay
	direct *clientv3.Client // not through the relay

	mu     sync.Mutex // guards events
	events []string
}

func newFaulty(t *testing.T, adjust ...func(*mirror.Options)) *faulty {
	t.Helper()
	return newFaultyOf(t, etcdtest.Listen(t), adjust...)
}

// newFaultyOf mirrors the etcd of an endpoint.
func newFaultyOf(t *testing.T, endpoint string, adjust ...func(*mirror.Options)) *faulty {
	t.Helper()
	f := &faulty{relay: newRelay(t, endpoint), direct: etcdtest.Dial(t, endpoint)}
	f.Rig = cachetest.NewRig(t, subject(t, etcdtest.Dial(t, f.relay.endpoint()), f.direct, adjust...))
	f.Handler(schema.ServiceEntry, func(o, c *config.Config, e cache.Event) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.events = append(f.events, cachetest.Describe(o, c, e))
	})
	return f
}

func (f *faulty) expect(t *testing.T, want ...string) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if d := cmp.Diff(want, f.events); d != "" {
		t.Fatalf("events (-want +got):\n%s", d)
	}
	f.events = nil
}

func compact(t testing.TB, client *clientv3.Client) {
	t.Helper()
	now, err := client.Get(t.Context(), etcd.MeshPrefix)
	if err == nil {
		_, err = client.Compact(t.Context(), now.Header.Revision)
	}
	if err != nil && !errors.Is(err, rpctypes.ErrCompacted) { // ErrCompacted: nothing was written since the last time
		t.Error(err)
	}
}

func TestACutWatchGoesOnWhereItStopped(t *testing.T) {
	t.Parallel()
	f := newFaulty(t)
	first := f.Put("a", "x", 1)
	f.Start()
	f.expect(t, "add a/x ->1")
	f.relay.cut()
	f.Eventually("unreachable", func() bool { return !mirrorOf(f.Rig).Reachable() })
	second := f.Put("a", "x", 2)
	f.Put("a", "y", 2)
	last := f.Remove("a", "y")
	f.relay.lead(f.direct.Endpoints()[0])
	f.Settle(last)
	f.Equal()
	f.Eventually("reachable", mirrorOf(f.Rig).Reachable)
	if got := mirrorOf(f.Rig).Snapshot().Get(cachetest.Key("a", "x")); cachetest.Round(got) != "2" {
		t.Errorf("round %s, want 2", cachetest.Round(got))
	}
	// Without a new list the history continues: it still reaches back to before.
	if then, ok := f.Cache.Since(t.Context(), cachetest.Revision(t, second)); !ok || cachetest.Round(then.Get(cachetest.Key("a", "x"))) != "1" {
		t.Errorf("the history since %s is lost (first was %s)", second, first)
	}
}

func TestCompactionWhileCutEndsInTheDifference(t *testing.T) {
	t.Parallel()
	f := newFaulty(t)
	f.Apply(cachetest.Put("a", "again", 1), cachetest.Put("a", "changed", 1), cachetest.Put("a", "gone", 1), cachetest.Put("a", "kept", 1))
	f.Start()
	f.expect(t, "add a/again ->1", "add a/changed ->1", "add a/gone ->1", "add a/kept ->1")
	kept := f.Cache.Snapshot().Get(cachetest.Key("a", "kept"))
	f.relay.cut()
	f.Put("a", "changed", 2)
	f.Put("a", "fleeting", 2)
	f.Remove("a", "fleeting")
	f.Remove("a", "gone")
	f.Remove("a", "again")
	f.Put("a", "again", 2)
	last := f.Put("a", "new", 2)
	compact(t, f.direct)
	f.relay.lead(f.direct.Endpoints()[0])
	f.Settle(last)
	f.Equal()
	f.expect(t, "update a/again 1>2", "update a/changed 1>2", "delete a/gone 1>-", "add a/new ->2")
	if f.Cache.Snapshot().Get(cachetest.Key("a", "kept")) != kept {
		t.Error("an unchanged object became another pointer")
	}
	if _, ok := f.Cache.Since(t.Context(), cachetest.Revision(t, last)-1); ok {
		t.Error("the history claims to know what was compacted")
	}
}

func TestAnUnreachableEtcdIsTriedUntilItAnswers(t *testing.T) {
	t.Parallel()
	f := newFaulty(t)
	f.relay.cut()
	last := f.Put("a", "x", 1)
	f.Launch()
	f.Quiesce()
	if f.Cache.HasSynced() || f.Cache.Snapshot() != nil || mirrorOf(f.Rig).Reachable() {
		t.Error("a cache that never reached etcd claims something")
	}
	f.relay.lead(f.direct.Endpoints()[0])
	f.Settle(last)
	f.Eventually("HasSynced", f.Cache.HasSynced)
	f.expect(t, "add a/x ->1")
}

// TestAStoreThatWentBackIsListedAnew leads the mirror to another etcd at an older
// revision, as a restore from a backup would.
func TestAStoreThatWentBackIsListedAnew(t *testing.T) {
	t.Parallel()
	f := newFaulty(t)
	other := etcdtest.Listen(t)
	restored := cachetest.NewRig(t, subject(t, etcdtest.Dial(t, other), etcdtest.Dial(t, other)))
	restored.Apply(cachetest.Put("a", "x", 7), cachetest.Put("a", "y", 7))
	for i := range 20 {
		f.Put("a", "x", i)
	}
	f.Apply(cachetest.Put("a", "x", 1), cachetest.Put("a", "z", 1))
	f.Start()
	f.expect(t, "add a/x ->1", "add a/z ->1")
	before := f.Cache.Snapshot()
	f.relay.cut()
	f.relay.lead(other)
	f.Eventually("the restored state", func() bool {
		return f.Cache.Snapshot().Revision() < before.Revision() && f.Cache.Handled() == f.Cache.Snapshot()
	})
	f.expect(t, "update a/x 1>7", "add a/y ->7", "delete a/z 1>-")
	if got, want := cachetest.Digest(t, f.Cache), cachetest.Digest(t, restored.Store); got != want {
		t.Error("the cache differs from the restored store")
	}
	if _, err := f.Cache.Next(t.Context(), before); err == nil {
		t.Error("a follower of the lost history was not told")
	}
}

// TestEveryFaultEndsEqual combines writes, cuts and compactions.
func TestEveryFaultEndsEqual(t *testing.T) {
	t.Parallel()
	f := newFaulty(t)
	fold := f.Fold()
	f.Start()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for round := range 150 {
		f.Mutate(random, round)
		switch random.IntN(12) {
		case 0:
			f.relay.cut()
		case 1:
			f.relay.cut()
			f.relay.lead(f.direct.Endpoints()[0])
		case 2:
			f.relay.lead(f.direct.Endpoints()[0])
		case 3:
			compact(t, f.direct)
		case 4:
			f.relay.lead(f.direct.Endpoints()[0])
			f.Settle(f.Store.Version())
			f.Equal()
		}
	}
	f.relay.lead(f.direct.Endpoints()[0])
	f.Settle(f.Store.Version())
	f.Equal()
	fold.Check()
}

// TestCompactionToTheHeadUnderLoad keeps the mirror at the edge of the compacted
// revisions.
func TestCompactionToTheHeadUnderLoad(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t)
	r := cachetest.NewRig(t, subject(t, client, client))
	fold := r.Fold()
	r.Start()
	random := rand.New(rand.NewPCG(1, 2))
	for round := range 150 {
		r.Mutate(random, round)
		compact(t, client)
	}
	r.Settle(r.Store.Version())
	r.Equal()
	fold.Check()
}

// logged collects log records at Error level: their keys and revisions, and all of them.
type logged struct {
	anew func() // if set, called before a new list

	mu    sync.Mutex // guards the fields below
	keys  []string
	words []string
}

func (l *logged) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }
func (l *logged) WithAttrs([]slog.Attr) slog.Handler               { return l }
func (l *logged) WithGroup(string) slog.Handler                    { return l }

func (l *logged) Handle(_ context.Context, r slog.Record) error {
	if r.Level < slog.LevelError {
		if l.anew != nil && strings.HasPrefix(r.Message, "listing the configuration") {
			l.anew()
		}
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	line := ""
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "key" || a.Key == "revision" {
			line += a.Value.String() + " "
		}
		return true
	})
	l.keys = append(l.keys, line)
	words := r.Message
	r.Attrs(func(a slog.Attr) bool { words += " " + a.String(); return true })
	l.words = append(l.words, words)
	return nil
}

func (l *logged) said() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.words)
}

func (l *logged) lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.keys)
}

func TestAValueThatDoesNotDecodeBreaksNothing(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t)
	var log logged
	r := cachetest.NewRig(t, subject(t, client, client, logTo(&log)))
	fold := r.Fold()
	put := func(key, value string) string {
		t.Helper()
		answer, err := client.Put(t.Context(), key, value)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(answer.Header.Revision)
	}
	key := func(name string) string { return etcd.ConfigKey(cachetest.Key("a", name)) }
	never := put(key("never"), "not an envelope") // broken before the first list
	r.Put("a", "x", 1)
	r.Start()
	broken := put(key("x"), "not an envelope")
	foreign := []string{
		put(etcd.ConfigPrefix+"example.org/Unknown/a/x", "of another kind"),
		put(etcd.ConfigPrefix+"short", "of no form"),
		put(etcd.MeshPrefix+"workload/x", "of another tree"),
	}
	for _, revision := range foreign {
		r.Settle(revision) // each moves the revision
	}
	stands := func(name, round string) {
		t.Helper()
		if got := r.Cache.Snapshot().Get(cachetest.Key("a", name)); cachetest.Round(got) != round {
			t.Errorf("%s is at round %s, want %s", name, cachetest.Round(got), round)
		}
	}
	stands("x", "1")
	stands("never", "-")
	r.Settle(r.Put("a", "y", 1))
	stands("y", "1")
	r.Settle(r.Put("a", "x", 2)) // repaired
	stands("x", "2")
	again := put(key("x"), "not an envelope again")
	r.Settle(again)
	if _, err := client.Delete(t.Context(), key("x")); err != nil {
		t.Fatal(err)
	}
	r.Eventually("the deletion", func() bool { return r.Cache.Snapshot().Get(cachetest.Key("a", "x")) == nil })
	want := []string{key("never") + " " + never + " ", key("x") + " " + broken + " ", key("x") + " " + again + " "}
	if d := cmp.Diff(want, log.lines()); d != "" {
		t.Errorf("logged (-want +got):\n%s", d)
	}
	fold.Check()
}

func TestANewListKeepsTheLastGoodObject(t *testing.T) {
	t.Parallel()
	f := newFaulty(t)
	f.Put("a", "x", 1)
	f.Start()
	f.expect(t, "add a/x ->1")
	f.relay.cut()
	answer, err := f.direct.Put(t.Context(), etcd.ConfigKey(cachetest.Key("a", "x")), "not an envelope")
	if err != nil {
		t.Fatal(err)
	}
	f.Put("a", "y", 1)
	compact(t, f.direct)
	f.relay.lead(f.direct.Endpoints()[0])
	f.Settle(fmt.Sprint(answer.Header.Revision + 1))
	f.expect(t, "add a/y ->1")
	if got := f.Cache.Snapshot().Get(cachetest.Key("a", "x")); cachetest.Round(got) != "1" {
		t.Errorf("x is at round %s, want 1", cachetest.Round(got))
	}
}

// TestProgressMovesTheRevision: writes outside the mesh tree bring no events, but the
// cache still learns the revision of the store.
func TestProgressMovesTheRevision(t *testing.T) {
	t.Parallel()
	endpoint := etcdtest.Listen(t)
	client := etcdtest.Dial(t, endpoint)
	r := cachetest.NewRig(t, subject(t, client, etcdtest.Dial(t, endpoint)))
	r.Put("a", "x", 1)
	r.Start()
	configs := r.Cache.Snapshot().Configs()
	var revision int64
	for range 3 {
		answer, err := client.Put(t.Context(), etcd.SidePrefix+"status/x", "1")
		if err != nil {
			t.Fatal(err)
		}
		revision = answer.Header.Revision
	}
	r.Settle(fmt.Sprint(revision))
	if r.Cache.Snapshot().Configs() != configs {
		t.Error("a progress mark changed objects")
	}
	if !mirrorOf(r).Reachable() {
		t.Error("an idle cache says that etcd is unreachable")
	}
}

// TestAListOfSeveralPages reads more keys than one page holds, while batches change the
// first and the last of them together.
func TestAListOfSeveralPages(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t)
	r := cachetest.NewRig(t, subject(t, client, client))
	last := r.Fill(20_001)
	fold := r.Fold()
	r.Worker.AtTaskEnd(func() {
		handled := r.Cache.Handled()
		head := cachetest.Round(handled.Get(cachetest.Key("n000", "object-000000")))
		tail := cachetest.Round(handled.Get(cachetest.Key("n020", "object-020000")))
		if head != tail {
			t.Errorf("revision %s has rounds %s and %s of one batch", handled.Version(), head, tail)
		}
	})
	r.Launch()
	for round := 1; round < 20 || !r.Cache.HasSynced(); round++ {
		last = r.Apply(cachetest.Put("n000", "object-000000", round), cachetest.Put("n020", "object-020000", round))
	}
	r.Settle(last)
	r.Equal()
	fold.Check()
	if n := r.Cache.Snapshot().Configs().Len(); n != 20_001 {
		t.Errorf("%d objects, want 20,001", n)
	}
}

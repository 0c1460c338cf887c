package mirror_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portolan-mesh/portolan/cache/cachetest"
	"github.com/portolan-mesh/portolan/cache/mirror"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
)

// restored has two etcds of one origin: the second began as a backup of the first, with
// the same cluster id and the same store id.
type restored struct {
	*faulty
	registry *prometheus.Registry
	log      *logged
	later    *cachetest.Rig // writes to the second
	backup   *node
}

func newRestored(t *testing.T, before func(*cachetest.Rig)) *restored {
	t.Helper()
	first := startNode(t, t.TempDir())
	origin := etcdtest.Dial(t, first.Endpoint)
	if _, err := etcd.EnsureInstance(t.Context(), origin); err != nil {
		t.Fatal(err)
	}
	before(cachetest.NewRig(t, subject(t, origin, origin)))
	first.Stop()
	backup := startNode(t, copyOf(t, first))
	again := startNode(t, first.dir)
	r := &restored{registry: prometheus.NewRegistry(), log: &logged{}, backup: backup}
	r.faulty = newFaultyOf(t, again.Endpoint, register(r.registry), logTo(r.log))
	client := etcdtest.Dial(t, backup.Endpoint)
	r.later = cachetest.NewRig(t, subject(t, client, client))
	return r
}

// TestAStoreRestoredToAnOlderState: the cache goes back with it.
func TestAStoreRestoredToAnOlderState(t *testing.T) {
	t.Parallel()
	f := newRestored(t, func(r *cachetest.Rig) { r.Apply(cachetest.Put("a", "x", 1), cachetest.Put("a", "y", 1)) })
	fold := f.Fold()
	for i := range 10 {
		f.Put("a", "x", 2+i)
	}
	f.Put("a", "z", 1)
	f.Start()
	f.expect(t, "add a/x ->11", "add a/y ->1", "add a/z ->1")
	f.relay.cut()
	f.relay.lead(f.backup.Endpoint)
	f.converge(t)
	f.expect(t, "update a/x 11>1", "delete a/z 1>-")
	fold.Check()
	f.announced(t, "epoch")
}

// TestARestoredStoreThatCaughtUp: the cache sees the store at an older revision, but
// lists it at the revision of the first store. The revisions between stand for something
// else.
func TestARestoredStoreThatCaughtUp(t *testing.T) {
	t.Parallel()
	f := newRestored(t, func(r *cachetest.Rig) { r.Put("a", "x", 1) })
	fold := f.Fold()
	const writes = 10
	for i := range writes {
		f.Put("a", "x", 2+i)
	}
	f.log.anew = sync.OnceFunc(func() {
		for i := range writes {
			f.later.Put("a", "x", 100+i)
		}
	})
	f.Start()
	f.expect(t, "add a/x ->11")
	before := f.Cache.Snapshot()
	f.relay.cut()
	f.relay.lead(f.backup.Endpoint)
	f.Eventually("what was written to the restored store", func() bool {
		return cachetest.Round(f.Cache.Snapshot().Get(cachetest.Key("a", "x"))) == "109"
	})
	f.converge(t)
	if got := f.Cache.Snapshot().Revision(); got < before.Revision() {
		t.Fatalf("the store is at %d and was at %d: it has not caught up", got, before.Revision())
	}
	fold.Check()
	f.announced(t, "epoch")
	if _, err := f.Cache.Next(t.Context(), before); err == nil {
		t.Error("a follower of the lost history was not told")
	}
}

// TestARestoredStoreThatOvertook: the store is ahead of the cache, and revisions that
// the cache knows stand for something else.
func TestARestoredStoreThatOvertook(t *testing.T) {
	t.Parallel()
	f := newRestored(t, func(r *cachetest.Rig) { r.Apply(cachetest.Put("a", "x", 1), cachetest.Put("a", "y", 1)) })
	fold := f.Fold()
	f.Put("a", "x", 2)
	f.Put("a", "lost", 1)
	f.Start()
	f.expect(t, "add a/lost ->1", "add a/x ->2", "add a/y ->1")
	for i := range 5 { // the same keys, the same revisions, other contents
		f.later.Put("a", "x", 20+i*0)
		f.later.Put("a", "new", i)
	}
	f.relay.cut()
	f.relay.lead(f.backup.Endpoint)
	f.converge(t)
	fold.Check()
	for _, name := range []string{"lost", "x", "y", "new"} {
		if got, want := cachetest.Round(f.Cache.Snapshot().Get(cachetest.Key("a", name))), map[string]string{"lost": "-", "x": "20", "y": "1", "new": "4"}[name]; got != want {
			t.Errorf("%s is at round %s, want %s", name, got, want)
		}
	}
	if n := metric(t, f.registry, "portolan_cache_checks_total", "different"); n != 1 {
		t.Errorf("%v checks found a difference, want 1", n)
	}
	f.announced(t, "diverged")
}

// TestARestoredStoreWithTheSameRevisions is the hardest case: every key has the
// revision that the cache knows, and one has another value.
func TestARestoredStoreWithTheSameRevisions(t *testing.T) {
	t.Parallel()
	f := newRestored(t, func(r *cachetest.Rig) { r.Put("a", "x", 1) })
	fold := f.Fold()
	here := f.Put("a", "x", 2)
	if there := f.later.Put("a", "x", 3); here != there {
		t.Fatalf("revisions %s and %s, want the same", here, there)
	}
	f.Start()
	f.expect(t, "add a/x ->2")
	f.relay.cut()
	f.relay.lead(f.backup.Endpoint)
	f.converge(t)
	f.expect(t, "update a/x 2>3")
	fold.Check()
	f.announced(t, "diverged")
}

// TestAnotherStoreOfAHigherRevision: it has the same cluster id, as two etcds with the
// same configuration do, but another store id.
func TestAnotherStoreOfAHigherRevision(t *testing.T) {
	t.Parallel()
	registry, log := prometheus.NewRegistry(), &logged{}
	f := &restored{registry: registry, log: log, backup: startNode(t, t.TempDir())}
	f.faulty = newFaultyOf(t, startNode(t, t.TempDir()).Endpoint, register(registry), logTo(log))
	client := etcdtest.Dial(t, f.backup.Endpoint)
	f.later = cachetest.NewRig(t, subject(t, client, client))
	if _, err := etcd.EnsureInstance(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	fold := f.Fold()
	f.Apply(cachetest.Put("a", "x", 1), cachetest.Put("a", "y", 1))
	f.Start()
	f.expect(t, "add a/x ->1", "add a/y ->1")
	f.later.Put("a", "x", 7)
	for i := range 20 {
		f.later.Put("b", "z", i)
	}
	here, err := etcd.ReadInstance(t.Context(), f.direct)
	if err != nil {
		t.Fatal(err)
	}
	there, err := etcd.ReadInstance(t.Context(), client)
	if err != nil || here.Cluster != there.Cluster || here.ID == there.ID || here.ID == "" {
		t.Fatalf("%+v and %+v, %v: want the same cluster and other ids", here, there, err)
	}
	f.relay.cut()
	f.relay.lead(f.backup.Endpoint)
	f.converge(t)
	fold.Check()
	f.announced(t, "epoch")
	if got := f.Cache.Snapshot().Get(cachetest.Key("a", "y")); got != nil {
		t.Error("an object of the other store is still there")
	}
}

// TestAnEmptiedStoreIsNotFollowed: the cache keeps serving its objects, and reports
// that, until the store has something again.
func TestAnEmptiedStoreIsNotFollowed(t *testing.T) {
	t.Parallel()
	registry, log := prometheus.NewRegistry(), &logged{}
	f := &restored{registry: registry, log: log, backup: startNode(t, t.TempDir())}
	f.faulty = newFaultyOf(t, startNode(t, t.TempDir()).Endpoint, register(registry), logTo(log))
	f.Apply(cachetest.Put("a", "x", 1), cachetest.Put("a", "y", 1))
	f.Start()
	f.expect(t, "add a/x ->1", "add a/y ->1")
	before := f.Cache.Snapshot()
	f.relay.cut()
	f.relay.lead(f.backup.Endpoint)
	f.Eventually("the cache says that the store was emptied", func() bool {
		err := mirrorOf(f.Rig).Degraded()
		return err != nil && strings.Contains(err.Error(), "was emptied")
	})
	if f.Cache.Snapshot() != before {
		t.Errorf("the cache is at %d, of %d objects", f.Cache.Snapshot().Revision(), f.Cache.Snapshot().Configs().Len())
	}
	client := etcdtest.Dial(t, f.backup.Endpoint)
	f.later = cachetest.NewRig(t, subject(t, client, client))
	f.later.Put("a", "x", 7)
	f.converge(t)
	if err := mirrorOf(f.Rig).Degraded(); err != nil {
		t.Error(err)
	}
}

// TestAnExpendableStoreIsFollowed: the cache of a store whose objects can be made again is empty
// where that store was emptied.
func TestAnExpendableStoreIsFollowed(t *testing.T) {
	t.Parallel()
	other := startNode(t, t.TempDir())
	f := newFaultyOf(t, startNode(t, t.TempDir()).Endpoint, func(o *mirror.Options) { o.Expendable = true })
	f.Apply(cachetest.Put("a", "x", 1))
	f.Start()
	f.relay.cut()
	f.relay.lead(other.Endpoint)
	f.Eventually("the cache is empty", func() bool { return f.Cache.Snapshot().Configs().Len() == 0 })
	if err := mirrorOf(f.Rig).Degraded(); err != nil {
		t.Error(err)
	}
}

// TestNoStoreBeginsUnasked: a cache that is not to begin a store writes nothing into an empty
// etcd and does not become ready. Once somebody has begun a store, it follows that.
func TestNoStoreBeginsUnasked(t *testing.T) {
	t.Parallel()
	endpoint := startNode(t, t.TempDir()).Endpoint
	f := newFaultyOf(t, endpoint, func(o *mirror.Options) { o.Unasked = true })
	f.Launch()
	f.Eventually("the cache says that there is no store", func() bool {
		err := mirrorOf(f.Rig).Degraded()
		return err != nil && strings.Contains(err.Error(), "--new-store")
	})
	client := etcdtest.Dial(t, endpoint)
	if found, err := etcd.ReadInstance(t.Context(), client); err != nil || found.ID != "" || f.Cache.HasSynced() {
		t.Errorf("%+v, %v, synced %v", found, err, f.Cache.HasSynced())
	}
	cachetest.NewRig(t, subject(t, client, client)).Put("a", "x", 7)
	f.Eventually("the cache has the object", func() bool { return f.Cache.HasSynced() && f.Cache.Snapshot().Configs().Len() == 1 })
	if err := mirrorOf(f.Rig).Degraded(); err != nil {
		t.Error(err)
	}
}

// converge waits until the cache is equal to the second store, handlers included.
func (f *restored) converge(t *testing.T) {
	t.Helper()
	want := cachetest.Digest(t, f.later.Store)
	f.Eventually("the state of the restored store", func() bool {
		return cachetest.Digest(t, f.Cache) == want && f.Cache.Handled() == f.Cache.Snapshot()
	})
	f.Quiesce()
}

// announced checks that one epoch began, with a list for that reason.
func (f *restored) announced(t *testing.T, reason string) {
	t.Helper()
	if n := metric(t, f.registry, "portolan_cache_epochs_total"); n != 1 || f.Cache.Snapshot().Epoch() != 1 {
		t.Errorf("%v epochs counted, snapshot of %d, want 1", n, f.Cache.Snapshot().Epoch())
	}
	if n := metric(t, f.registry, "portolan_cache_relists_total", reason); n != 1 {
		t.Errorf("%v lists because of %q, want 1", n, reason)
	}
	if !slices.ContainsFunc(f.log.said(), func(s string) bool { return strings.HasPrefix(s, "a new epoch") }) {
		t.Errorf("the epoch was not announced: %q", f.log.said())
	}
}

// TestTheCheckFindsWhatAWatchLost: the next check finds an event that never came. A new
// list repairs the cache, and handlers get the difference.
func TestTheCheckFindsWhatAWatchLost(t *testing.T) {
	t.Parallel()
	endpoint := etcdtest.Listen(t)
	direct := etcdtest.Dial(t, endpoint)
	var dropping atomic.Bool
	deaf := mutate(etcdtest.Dial(t, endpoint), func(r clientv3.WatchResponse) []clientv3.WatchResponse {
		if dropping.Load() {
			r.Events = nil
		}
		return []clientv3.WatchResponse{r}
	})
	registry, log := prometheus.NewRegistry(), &logged{}
	r := cachetest.NewRig(t, subject(t, deaf, direct, register(registry), logTo(log), checkEvery(200*time.Millisecond)))
	fold := r.Fold()
	r.Apply(cachetest.Put("a", "changed", 1), cachetest.Put("a", "gone", 1), cachetest.Put("a", "kept", 1))
	r.Start()
	dropping.Store(true)
	// One batch: a check between several writes would find, and report, the first alone.
	lost := r.Apply(cachetest.Put("a", "changed", 2), cachetest.Put("a", "new", 2), cachetest.Remove("a", "gone"))
	r.Settle(lost) // a progress notification moves the cache there
	dropping.Store(false)
	want := cachetest.Digest(t, r.Store)
	r.Eventually("the cache is healed", func() bool { return cachetest.Digest(t, r.Cache) == want })
	r.Settle(r.Put("a", "after", 1))
	r.Equal()
	fold.Check()
	if n := metric(t, registry, "portolan_cache_checks_total", "different"); n != 1 {
		t.Errorf("%v checks found a difference, want 1", n)
	}
	if n := metric(t, registry, "portolan_cache_relists_total", "diverged"); n != 1 {
		t.Errorf("%v lists, want 1", n)
	}
	said := strings.Join(log.said(), "\n")
	for _, name := range []string{"changed: in the store at 4, in the cache at", "gone: not in the store", "new: in the store at 4, not in the cache"} {
		if !strings.Contains(said, name) {
			t.Errorf("%q is not in\n%s", name, said)
		}
	}
}

// TestChecksOfABusyCacheAreNotAlarmed compares as often as possible while objects
// change, break and are repaired.
func TestChecksOfABusyCacheAreNotAlarmed(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	f := newFaulty(t, register(registry), checkEvery(time.Millisecond))
	f.Start()
	n := 0
	f.storm(t, 300, f.flash, func() { compact(t, f.direct) }, func() {
		n++
		_, err := f.direct.Put(t.Context(), etcd.ConfigKey(cachetest.Key("a", fmt.Sprint("broken", n%3))), "not an envelope")
		if err != nil {
			t.Fatal(err)
		}
	}, func() {
		if _, err := f.direct.Delete(t.Context(), etcd.ConfigKey(cachetest.Key("a", fmt.Sprint("broken", n%3)))); err != nil {
			t.Fatal(err)
		}
	})
	f.Await(f.Store.Version())
	f.Eventually("checks", func() bool { return metric(t, registry, "portolan_cache_checks_total", "equal") > 20 })
	if n := metric(t, registry, "portolan_cache_checks_total", "different"); n != 0 {
		t.Errorf("%v false alarms", n)
	}
	f.Equal()
}

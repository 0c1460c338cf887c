package mirror_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cache/cachetest"
	"github.com/portolan-mesh/portolan/cache/mirror"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// storm mutates the store for some rounds, with faults in between. At the end the relay
// forwards again.
func (f *faulty) storm(t *testing.T, rounds int, faults ...func()) {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for round := range rounds {
		f.Mutate(random, round)
		if random.IntN(4) == 0 {
			faults[random.IntN(len(faults))]()
		}
	}
	f.relay.lead(f.direct.Endpoints()[0])
}

func (f *faulty) mend()  { f.relay.lead(f.direct.Endpoints()[0]) }
func (f *faulty) flash() { f.relay.cut(); f.mend() }

func none(t *testing.T, what string, faults []string) {
	t.Helper()
	if len(faults) > 0 {
		t.Errorf("%s: %d faults, first %s", what, len(faults), faults[0])
	}
}

// TestWatch checks the six promises of a watch (order, unique, reliable, atomic,
// resumable, bookmark). Connections are cut and held, and nothing is compacted: every
// snapshot equals the store at its revision, without a new list.
func TestWatch(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	f := newFaulty(t, register(registry))
	h, w := record(t, f.direct), observe(t, f.Rig)
	f.Start()
	f.Eventually("a follower", func() bool { return w.reached(1) })
	f.storm(t, 200, f.relay.cut, f.flash, f.mend, f.relay.hold)
	last := f.Store.Version()
	f.Settle(last)
	end := cachetest.Revision(t, last)
	f.Eventually("the truth", func() bool { return h.knows(end) && w.reached(end) })
	none(t, "against the history of the store", h.judge(w.all()))
	none(t, "order", w.monotone())
	for _, reason := range []string{"compacted", "epoch", "diverged", "other"} {
		if n := metric(t, registry, "portolan_cache_relists_total", reason); n != 0 {
			t.Errorf("%v lists because of %s: a watch goes on where it stopped", n, reason)
		}
	}
	f.Equal()
}

// TestWatchCheckersBite shows that the checks of TestWatch find faults.
func TestWatchCheckersBite(t *testing.T) {
	t.Parallel()
	mutants := map[string]func(clientv3.WatchResponse) []clientv3.WatchResponse{
		"an event is dropped": func() func(r clientv3.WatchResponse) []clientv3.WatchResponse {
			n := 0
			return func(r clientv3.WatchResponse) []clientv3.WatchResponse {
				r.Events = slices.DeleteFunc(slices.Clone(r.Events), func(*clientv3.Event) bool { n++; return n%50 == 0 })
				return []clientv3.WatchResponse{r}
			}
		}(),
		"a batch comes in parts": func(r clientv3.WatchResponse) []clientv3.WatchResponse {
			if len(r.Events) < 2 {
				return []clientv3.WatchResponse{r}
			}
			var parts []clientv3.WatchResponse
			for _, e := range r.Events {
				part := r
				part.Events = []*clientv3.Event{e}
				parts = append(parts, part)
			}
			return parts
		},
	}
	for name, change := range mutants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			endpoint := etcdtest.Listen(t)
			direct := etcdtest.Dial(t, endpoint)
			r := cachetest.NewRig(t, subject(t, mutate(etcdtest.Dial(t, endpoint), change), direct))
			h, w := record(t, direct), observe(t, r)
			r.Start()
			r.Eventually("a follower", func() bool { return w.reached(1) })
			random := rand.New(rand.NewPCG(1, 1))
			for round := range 60 {
				r.Mutate(random, round)
			}
			last := r.Store.Version()
			r.Settle(last)
			end := cachetest.Revision(t, last)
			r.Eventually("the truth", func() bool { return h.knows(end) && w.reached(end) })
			if len(h.judge(w.all())) == 0 {
				t.Error("nobody noticed")
			}
		})
	}
}

// TestRevMono: within an epoch, revisions never go back for a follower or for handlers,
// whatever happens. If the store goes back, an epoch begins.
func TestRevMono(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	f := newFaulty(t, register(registry))
	other := etcdtest.Listen(t)
	twin := cachetest.NewRig(t, subject(t, etcdtest.Dial(t, other), etcdtest.Dial(t, other)))
	twin.Put("a", "x", 7)
	w := observe(t, f.Rig)
	f.Start()
	f.Eventually("a follower", func() bool { return w.reached(1) })
	for epoch := int64(1); epoch <= 4; epoch++ {
		f.storm(t, 30, f.relay.cut, f.flash, f.relay.hold, func() { compact(t, f.direct) })
		f.relay.cut()
		if epoch%2 == 1 {
			f.relay.lead(other)
		} else {
			f.mend()
		}
		f.Eventually(fmt.Sprint("epoch ", epoch), func() bool { return f.Cache.Snapshot().Epoch() >= epoch })
	}
	f.Settle(f.Store.Version())
	f.Equal()
	none(t, "revisions", w.monotone())
	if n := metric(t, registry, "portolan_cache_epochs_total"); n != float64(f.Cache.Snapshot().Epoch()) {
		t.Errorf("%v epochs are counted, the snapshot is of epoch %d", n, f.Cache.Snapshot().Epoch())
	}
	backwards := slices.Reverse[[]*cache.Snapshot]
	followed := slices.Clone(w.followed)
	if backwards(followed); len(monotone(followed)) == 0 {
		t.Error("the checker does not bite")
	}
}

// TestRelistEq: over new lists the events of handlers add up to the store. Each deletion
// comes once, with the last known object, which Fold checks.
func TestRelistEq(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	f := newFaulty(t, register(registry))
	fold := f.Fold()
	deleted := map[string]int{} // written by the worker
	f.Handler(schema.ServiceEntry, func(old, curr *config.Config, event cache.Event) {
		if event == cache.EventDelete {
			deleted[old.UID]++
		}
	})
	f.Start()
	behind := func() { // the cache falls behind the compacted revision
		f.relay.cut()
		f.Mutate(rand.New(rand.NewPCG(3, 3)), 1000)
		f.Put("a", "x0", 1001)
		compact(t, f.direct)
		f.mend()
	}
	for range 5 {
		behind()
		f.storm(t, 15, f.flash, func() { compact(t, f.direct) })
		f.Settle(f.Store.Version())
		f.Equal()
		fold.Check()
	}
	if n := metric(t, registry, "portolan_cache_relists_total", "compacted"); n < 3 {
		t.Errorf("%v lists because of compaction: the test has not tested", n)
	}
	f.Quiesce()
	for uid, n := range deleted {
		if n != 1 {
			t.Errorf("the deletion of %s was told %d times", uid, n)
		}
	}
}

// usualWrites take an idle machine some tenths of a second.
const usualWrites = 20

// TestConverge: once faults stop, every replica is equal to the store and to every other
// within two seconds. A busy machine gets more time, in proportion to how slow the usual
// writes are.
func TestConverge(t *testing.T) {
	t.Parallel()
	endpoint := etcdtest.Listen(t)
	writer := etcdtest.Dial(t, endpoint)
	var replicas []*cachetest.Rig
	var relays []*relay
	for range 3 {
		relay := newRelay(t, endpoint)
		r := cachetest.NewRig(t, subject(t, etcdtest.Dial(t, relay.endpoint()), writer))
		r.Start()
		replicas, relays = append(replicas, r), append(relays, relay)
	}
	begun := time.Now()
	for round := range usualWrites {
		last := replicas[0].Put("a", "usual", round)
		for _, r := range replicas {
			r.Settle(last)
		}
	}
	limit := 2*time.Second + time.Since(begun)
	random := rand.New(rand.NewPCG(rand.Uint64(), 0))
	for round := range 120 {
		replicas[0].Mutate(random, round)
		relay := relays[random.IntN(3)]
		switch random.IntN(8) {
		case 0:
			relay.cut()
		case 1:
			relay.hold()
		case 2:
			relay.lead(endpoint)
		case 3:
			compact(t, writer)
		}
	}
	for _, relay := range relays {
		relay.cut()
		relay.lead(endpoint)
	}
	healed := time.Now()
	last := replicas[0].Store.Version()
	for _, r := range replicas {
		r.Settle(last)
	}
	if took := time.Since(healed); took > limit {
		t.Errorf("it took %s, want %s at most", took, limit)
	}
	want := cachetest.Digest(t, replicas[0].Store)
	for i, r := range replicas {
		if got := cachetest.Digest(t, r.Cache); got != want {
			t.Errorf("replica %d differs from the store at revision %s", i, last)
		}
	}
}

// TestCacheAtLeastEvent: the cache shows what a handler got, or something newer, over
// cuts and new lists.
func TestCacheAtLeastEvent(t *testing.T) {
	t.Parallel()
	f := newFaulty(t)
	f.Handler(schema.ServiceEntry, func(old, curr *config.Config, event cache.Event) {
		told := curr
		if told == nil {
			told = old
		}
		shown := f.Cache.Snapshot().Get(told.Key())
		if shown != nil && cachetest.Revision(t, shown.ResourceVersion) < cachetest.Revision(t, told.ResourceVersion) {
			t.Errorf("%s of version %s: the cache shows %s", event, told.ResourceVersion, shown.ResourceVersion)
		}
		if shown == old && shown != nil {
			t.Errorf("%s: the cache shows the old object, version %s", event, old.ResourceVersion)
		}
	})
	f.Start()
	f.storm(t, 150, f.relay.cut, f.flash, f.mend, f.relay.hold, func() { compact(t, f.direct) })
	f.Settle(f.Store.Version())
	f.Equal()
}

// TestNoPoison: no key or value under the tree stops a list, a watch, or the delivery of
// other keys, or counts as a difference.
func TestNoPoison(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	client := etcdtest.Start(t)
	r := cachetest.NewRig(t, subject(t, client, client, register(registry), checkEvery(20*time.Millisecond)))
	fold := r.Fold()
	poison := []string{
		etcd.ConfigKey(cachetest.Key("a", "broken")), etcd.ConfigPrefix + "example.org/Unknown/a/x", etcd.ConfigPrefix,
		etcd.ConfigPrefix + "a//b/\x00", etcd.ConfigPrefix + strings.Repeat("x/", 3000), etcd.MeshPrefix + "other/x",
		strings.TrimSuffix(etcd.ConfigKey(cachetest.Key("a", "x")), "x"),
	}
	spread := func() {
		for i, key := range poison {
			if _, err := client.Put(t.Context(), key, strings.Repeat("\xff", i*i*i*5000)); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.Put("a", "x", 1)
	spread()
	r.Start()
	spread()
	r.Settle(r.Put("a", "y", 1))
	if got := r.Cache.Snapshot().Configs().Len(); got != 2 {
		t.Errorf("%d objects, want 2", got)
	}
	if n := metric(t, registry, "portolan_cache_broken_values"); n != 1 {
		t.Errorf("%v broken values are counted, want 1", n)
	}
	if n := metric(t, registry, "portolan_cache_foreign_keys"); n != 5 {
		t.Errorf("%v foreign keys are counted, want 5", n)
	}
	r.Eventually("a few checks", func() bool { return metric(t, registry, "portolan_cache_checks_total", "equal") > 5 })
	if n := metric(t, registry, "portolan_cache_checks_total", "different"); n != 0 {
		t.Errorf("%v checks found a difference", n)
	}
	if _, err := client.Delete(t.Context(), poison[0]); err != nil {
		t.Fatal(err)
	}
	r.Eventually("no broken value", func() bool { return metric(t, registry, "portolan_cache_broken_values") == 0 })
	if err := mirrorOf(r).Degraded(); err != nil {
		t.Errorf("degraded: %v", err)
	}
	fold.Check()
}

func checkEvery(d time.Duration) func(*mirror.Options) {
	return func(o *mirror.Options) { o.CheckInterval = d }
}

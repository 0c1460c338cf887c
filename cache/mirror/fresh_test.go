package mirror_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/portolan-mesh/portolan/cache/cachetest"
	"github.com/portolan-mesh/portolan/cache/mirror"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// TestFresh: the reported staleness is never below the true one, whether or not etcd can
// be reached.
func TestFresh(t *testing.T) {
	t.Parallel()
	f := newFaulty(t)
	f.Start()
	var mu sync.Mutex
	acknowledged := map[int64]time.Time{}
	done := make(chan struct{})
	var writing sync.WaitGroup
	writing.Go(func() {
		defer close(done)
		for round := range 300 {
			switch round % 60 {
			case 20:
				f.relay.hold()
			case 40:
				f.mend()
			case 55:
				f.flash()
			}
			revision := cachetest.Revision(t, f.Put("a", "x", round))
			mu.Lock()
			acknowledged[revision] = time.Now()
			mu.Unlock()
			time.Sleep(time.Millisecond) // the pace of the writer
		}
	})
	samples, worst := 0, time.Duration(0)
	for running := true; running; samples++ {
		select {
		case <-done:
			running = false
		default:
		}
		before := time.Now()
		reported := mirrorOf(f.Rig).Staleness()
		shown := f.Cache.Snapshot().Revision()
		mu.Lock()
		for revision, at := range acknowledged {
			if behind := before.Sub(at); revision > shown && behind > reported {
				t.Errorf("staleness is reported as %s, and revision %d, acknowledged %s ago, is missing", reported, revision, behind)
			}
		}
		mu.Unlock()
		worst = max(worst, reported)
		time.Sleep(100 * time.Microsecond) // leaves the processor to the writer
	}
	writing.Wait()
	t.Logf("%d samples, worst %s", samples, worst)
	f.mend()
	f.Settle(f.Store.Version())
	f.Eventually("a fresh cache", func() bool { return mirrorOf(f.Rig).Staleness() < 200*time.Millisecond })
}

// TestFreshWhileIdle: even if nothing changes here, the revision follows the store's
// within two intervals.
func TestFreshWhileIdle(t *testing.T) {
	t.Parallel()
	const interval = 500 * time.Millisecond
	endpoint := etcdtest.Listen(t)
	c := etcdtest.Dial(t, endpoint)
	registry := prometheus.NewRegistry()
	r := cachetest.NewRig(t, subject(t, etcdtest.Dial(t, endpoint), c, register(registry),
		func(o *mirror.Options) { o.ProgressInterval = interval }))
	r.Start()
	var took []time.Duration
	for range 3 {
		answer, err := c.Put(t.Context(), etcd.StatusPrefix+"x", "1")
		if err != nil {
			t.Fatal(err)
		}
		started := time.Now()
		r.Eventually("the revision", func() bool { return r.Cache.Snapshot().Revision() >= answer.Header.Revision })
		took = append(took, time.Since(started))
		r.Eventually("a fresh cache", func() bool {
			return metric(t, registry, "portolan_cache_staleness_seconds") <= 2*interval.Seconds()
		})
	}
	if slices.Sort(took); took[1] > 2*interval {
		t.Errorf("it takes %s", took[1])
	}
}

// TestStaticStab: without its store a replica goes on serving what it has, says so, and
// catches up when the store is back.
func TestStaticStab(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	endpoint := etcdtest.Listen(t)
	relay := newRelay(t, endpoint)
	behind, direct := etcdtest.Dial(t, relay.endpoint()), etcdtest.Dial(t, endpoint)
	r := cachetest.NewRig(t, subject(t, behind, behind, register(registry)))
	other := cachetest.NewRig(t, subject(t, direct, direct))
	r.Put("a", "x", 1)
	r.Start()
	if err := mirrorOf(r).Degraded(); err != nil {
		t.Errorf("degraded: %v", err)
	}
	relay.cut()
	r.Eventually("degraded", func() bool { return mirrorOf(r).Degraded() != nil })
	if err := mirrorOf(r).Degraded(); !strings.Contains(err.Error(), "etcd does not answer: what is served is as of revision "+r.Cache.Version()) {
		t.Errorf("degraded: %v", err)
	}
	if got := metric(t, registry, "portolan_store_reachable"); got != 0 {
		t.Errorf("reachable is %v", got)
	}
	if object, err := r.Cache.Get(t.Context(), schema.ServiceEntry, "x", "a"); err != nil || cachetest.Round(object) != "1" || !r.Cache.HasSynced() {
		t.Errorf("%v, %v", object, err)
	}
	other.Put("a", "x", 2)
	last := other.Put("a", "y", 2)
	relay.lead(endpoint)
	r.Settle(last)
	r.Eventually("in step", func() bool {
		return mirrorOf(r).Degraded() == nil && metric(t, registry, "portolan_store_reachable") == 1
	})
	want := cachetest.Digest(t, other.Store)
	if cachetest.Digest(t, r.Cache) != want {
		t.Error("the cache differs from the store")
	}
}

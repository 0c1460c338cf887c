package mirror_test

import (
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/portolan-mesh/portolan/cache/cachetest"
	"github.com/portolan-mesh/portolan/cache/mirror"
	"github.com/portolan-mesh/portolan/cache/rest"
	"github.com/portolan-mesh/portolan/cache/rest/batch"
	"github.com/portolan-mesh/portolan/cache/rest/client"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// serve runs the config API over a replica, and returns a client of it.
func serve(t *testing.T, r *cachetest.Rig) *client.Client {
	t.Helper()
	api, err := rest.New(rest.Options{Store: r.Store, Cache: mirrorOf(r)})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(api.Handler())
	t.Cleanup(func() { api.EndWatches(); server.Close() })
	c, err := client.New(server.URL, client.Options{HTTP: server.Client()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// replicas are two servers over one etcd, the second behind a relay. Neither requests
// progress on its own, so a quick answer must come from a caller that waits.
type replicas struct {
	endpoint      string
	relay         *relay
	rigs          [2]*cachetest.Rig
	first, second *client.Client
}

func newReplicas(t *testing.T) *replicas {
	t.Helper()
	r := &replicas{endpoint: etcdtest.Listen(t)}
	r.relay = newRelay(t, r.endpoint)
	idle := func(o *mirror.Options) { o.ProgressInterval = time.Hour }
	for i, at := range []string{r.endpoint, r.relay.endpoint()} {
		c := etcdtest.Dial(t, at)
		r.rigs[i] = cachetest.NewRig(t, subject(t, c, c, idle))
		r.rigs[i].Start()
	}
	r.first, r.second = serve(t, r.rigs[0]), serve(t, r.rigs[1])
	return r
}

func apply(t *testing.T, c *client.Client, round int) (revision int64) {
	t.Helper()
	operation, err := batch.Write(batch.Apply, cachetest.ServiceEntry("a", "x", round))
	if err != nil {
		t.Fatal(err)
	}
	result, err := c.Apply(t.Context(), batch.New(operation))
	if err != nil {
		t.Fatal(err)
	}
	return cachetest.Revision(t, result.Revision)
}

func roundOf(t *testing.T, c *client.Client) (string, error) {
	t.Helper()
	entries := client.Resource(schema.Pilot().Kind(schema.ServiceEntry))
	object, err := c.Get(t.Context(), entries, "a", "x")
	if err != nil {
		return "", err
	}
	return object.GetLabels()["round"], nil
}

// TestReadYourWrites: given the revision that a write returned, any replica shows the
// write or fails with the advice to try again; it never shows an older state.
func TestReadYourWrites(t *testing.T) {
	t.Parallel()
	r := newReplicas(t)
	for round := range 60 {
		from, to := r.first, r.second
		if round%2 == 1 {
			from, to = to, from
		}
		revision := apply(t, from, round)
		if got, err := roundOf(t, to.Fresh(client.Freshness{MinRevision: revision})); err != nil || got != fmt.Sprint(round) {
			t.Fatalf("round %d at revision %d: the other replica shows %q, %v", round, revision, got, err)
		}
	}
	// A revision that changes nothing here brings no event.
	c := etcdtest.Dial(t, r.endpoint)
	var took []time.Duration
	for range 10 {
		answer, err := c.Put(t.Context(), etcd.StatusPrefix+"x", "1")
		if err != nil {
			t.Fatal(err)
		}
		started := time.Now()
		if _, err := roundOf(t, r.second.Fresh(client.Freshness{MinRevision: answer.Header.Revision})); err != nil {
			t.Fatalf("revision %d: %v", answer.Header.Revision, err)
		}
		took = append(took, time.Since(started))
	}
	slices.Sort(took)
	if median := took[len(took)/2]; median > time.Second {
		t.Errorf("an idle replica takes %s to answer", median)
	}
}

func TestReadYourWritesOfAReplicaThatIsCutOff(t *testing.T) {
	t.Parallel()
	r := newReplicas(t)
	revision := apply(t, r.first, 1)
	if _, err := roundOf(t, r.second.Fresh(client.Freshness{MinRevision: revision})); err != nil {
		t.Fatal(err)
	}
	r.relay.hold()
	revision = apply(t, r.first, 2)
	started := time.Now()
	_, err := roundOf(t, r.second.Fresh(client.Freshness{MinRevision: revision}))
	if !client.NotYet(err) || time.Since(started) > 20*time.Second {
		t.Errorf("after %s: %v; want, after 3s, that it is to be tried again", time.Since(started), err)
	}
	if seconds, ok := apierrors.SuggestsClientDelay(err); !ok || seconds == 0 {
		t.Errorf("%v does not say when", err)
	}
	_, err = roundOf(t, r.second.Fresh(client.Freshness{Consistent: true}))
	if !apierrors.IsServiceUnavailable(err) {
		t.Errorf("a consistent read without a store: %v", err)
	}
	if got, err := roundOf(t, r.second); err != nil || got != "1" {
		t.Errorf("a plain read is answered by what is there: %q, %v", got, err)
	}
	r.relay.lead(r.endpoint)
	r.rigs[1].Eventually("the write", func() bool {
		got, err := roundOf(t, r.second.Fresh(client.Freshness{MinRevision: revision}))
		return err == nil && got == "2"
	})
}

func TestConsistentReadsNeedNoRevision(t *testing.T) {
	t.Parallel()
	r := newReplicas(t)
	for round := range 30 {
		apply(t, r.first, round)
		if got, err := roundOf(t, r.second.Fresh(client.Freshness{Consistent: true})); err != nil || got != fmt.Sprint(round) {
			t.Fatalf("round %d: the other replica shows %q, %v", round, got, err)
		}
	}
}

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

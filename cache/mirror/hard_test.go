package mirror_test

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/connectivity"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cache/cachetest"
	"github.com/portolan-mesh/portolan/cache/mirror"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
	"github.com/portolan-mesh/portolan/storage/longtest"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// lists returns how often a mirror has listed after its first list.
func lists(t *testing.T, registry *prometheus.Registry) (n float64) {
	t.Helper()
	for _, reason := range []string{"compacted", "epoch", "diverged", "other"} {
		n += metric(t, registry, "portolan_cache_relists_total", reason)
	}
	return n
}

type warnLog struct {
	slog.Handler
	mu    sync.Mutex // guards lines
	lines []string
}

func (w *warnLog) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

func (w *warnLog) Handle(_ context.Context, r slog.Record) error {
	line := r.Message
	r.Attrs(func(a slog.Attr) bool { line += " " + a.String(); return true })
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, line)
	return nil
}

func (w *warnLog) said(text string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Contains(strings.Join(w.lines, "\n"), text)
}

// TestNoLeader: a cluster that loses its quorum ends the watch, which then resumes where
// it stopped.
func TestNoLeader(t *testing.T) {
	t.Parallel()
	members := etcdtest.Cluster(t)
	client := etcdtest.Dial(t, etcdtest.Endpoints(members)...)
	registry, log := prometheus.NewRegistry(), &warnLog{}
	r := cachetest.NewRig(t, subject(t, client, client, register(registry), logTo(log)))
	fold := r.Fold()
	r.Start()
	r.Settle(r.Put("a", "x", 1))
	members[1].Stop()
	members[2].Stop()
	r.Eventually("unreachable", func() bool { return !mirrorOf(r).Reachable() })
	r.Eventually("no leader", func() bool { return log.said("no leader") })
	if got := r.Cache.Snapshot().Get(cachetest.Key("a", "x")); cachetest.Round(got) != "1" {
		t.Errorf("round %s", cachetest.Round(got))
	}
	members[1].Start(t)
	var last string
	r.Eventually("a leader", func() bool {
		var err error
		last, _, err = r.Store.Apply(t.Context(), []storage.Op{cachetest.Put("a", "x", 2)})
		return err == nil
	})
	r.Settle(last)
	r.Equal()
	fold.Check()
	if n := lists(t, registry); n != 0 {
		t.Errorf("%v new lists: a watch goes on where it stopped", n)
	}
}

// TestBlackHole: the keepalive notices a connection that swallows everything.
func TestBlackHole(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes longer than the keepalive, 13 seconds")
	}
	endpoint := etcdtest.Listen(t)
	relay := newRelay(t, endpoint)
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{relay.endpoint()}, DialTimeout: time.Second, Logger: zap.NewNop(),
		DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 3 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	registry := prometheus.NewRegistry()
	r := cachetest.NewRig(t, subject(t, client, etcdtest.Dial(t, endpoint), register(registry)))
	fold := r.Fold()
	r.Start()
	r.Settle(r.Put("a", "x", 1))
	relay.swallow()
	r.Put("a", "x", 2)
	last := r.Put("a", "y", 2)
	r.Eventually("unreachable", func() bool { return !mirrorOf(r).Reachable() })
	r.Eventually("the end of the connection", func() bool { return client.ActiveConnection().GetState() != connectivity.Ready })
	relay.cut()
	relay.lead(endpoint)
	r.Settle(last)
	r.Equal()
	fold.Check()
	if n := lists(t, registry); n != 0 {
		t.Errorf("%v new lists", n)
	}
}

// TestASilentWatchIsBegunAgain: etcd answers but the watch does not.
func TestASilentWatchIsBegunAgain(t *testing.T) {
	t.Parallel()
	endpoint := etcdtest.Listen(t)
	var deaf atomic.Bool
	silent := mutate(etcdtest.Dial(t, endpoint), func(r clientv3.WatchResponse) []clientv3.WatchResponse {
		if deaf.Load() && !r.Created {
			return nil
		}
		return []clientv3.WatchResponse{r}
	})
	registry, log := prometheus.NewRegistry(), &warnLog{}
	r := cachetest.NewRig(t, subject(t, silent, etcdtest.Dial(t, endpoint), register(registry), logTo(log)))
	fold := r.Fold()
	r.Start()
	r.Settle(r.Put("a", "x", 1))
	deaf.Store(true)
	last := r.Put("a", "x", 2)
	r.Eventually("the end of the watch", func() bool { return log.said("the watch went silent") })
	deaf.Store(false)
	r.Settle(last)
	r.Equal()
	fold.Check()
	if n := lists(t, registry); n != 0 {
		t.Errorf("%v new lists", n)
	}
}

// slow is a watch that delays its first response.
type slow struct {
	clientv3.Watcher
	pause time.Duration
}

// Watch implements clientv3.Watcher.
func (s slow) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	in, out := s.Watcher.Watch(ctx, key, opts...), make(chan clientv3.WatchResponse)
	go func() { // ends with in, which ends with ctx
		defer close(out)
		select {
		case <-time.After(s.pause):
		case <-ctx.Done():
		}
		for response := range in {
			select {
			case out <- response:
			case <-ctx.Done():
			}
		}
	}()
	return out
}

// TestAWatchThatIsSlowToBeginIsLeftToIt: a watch that has much to catch up with is not
// restarted for ever.
func TestAWatchThatIsSlowToBeginIsLeftToIt(t *testing.T) {
	t.Parallel()
	endpoint := etcdtest.Listen(t)
	client := etcdtest.Dial(t, endpoint)
	client.Watcher = slow{client.Watcher, time.Second} // five times the initial patience
	r := cachetest.NewRig(t, subject(t, client, etcdtest.Dial(t, endpoint)))
	r.Start()
	r.Settle(r.Put("a", "x", 1))
	r.Equal()
}

// TestCompactionRace compacts to the head every 100 ms under load, while the mirror is
// cut off and held in turn.
func TestCompactionRace(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	f := newFaulty(t, register(registry))
	f.Fill(2000)
	fold := f.Fold()
	f.Start()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	var beside sync.WaitGroup
	beside.Go(func() {
		ticker := time.NewTicker(100 * time.Millisecond)
		defer ticker.Stop()
		for round := 0; ctx.Err() == nil; round++ {
			<-ticker.C
			compact(t, f.direct)
			switch round % 6 {
			case 0:
				f.relay.cut()
			case 3:
				f.relay.hold()
			case 2, 5:
				f.mend()
			}
		}
	})
	random := rand.New(rand.NewPCG(5, 5))
	for round := 0; ctx.Err() == nil; round++ {
		f.Mutate(random, round)
	}
	beside.Wait()
	f.mend()
	f.Settle(f.Store.Version())
	f.Equal()
	fold.Check()
	if n := metric(t, registry, "portolan_cache_relists_total", "compacted"); n == 0 {
		t.Error("no list because of compaction: the test has not tested")
	}
}

// TestBounded: 40,000 events, or 100,000, while a handler does not return, grow memory
// by the size of the history at most. Not parallel: it measures the memory of the
// process.
func TestBounded(t *testing.T) {
	client := etcdtest.Start(t)
	registry := prometheus.NewRegistry()
	r := cachetest.NewRig(t, subject(t, client, client, register(registry)))
	gate, entered := make(chan struct{}), make(chan struct{}, 1)
	release := sync.OnceFunc(func() { close(gate) })
	var blocking atomic.Bool
	r.Handler(schema.ServiceEntry, func(*config.Config, *config.Config, cache.Event) {
		if blocking.Load() {
			select {
			case entered <- struct{}{}:
			default:
			}
			<-gate
		}
	})
	fold := r.Fold()
	const perBatch, keys = 50, 500
	events := longtest.Histories(40_000, 100_000)
	put := func(n int) string {
		var ops []clientv3.Op
		for i := range perBatch {
			object := cachetest.ServiceEntry("a", keyName((n*perBatch+i)%keys), n)
			object.Annotations = map[string]string{"text": strings.Repeat(keyName(n), 300)}
			value, err := etcd.Encode(object, nil)
			if err != nil {
				t.Fatal(err)
			}
			ops = append(ops, clientv3.OpPut(etcd.ConfigKey(object.Key()), string(value)))
		}
		answer, err := client.Txn(t.Context()).Then(ops...).Commit()
		if err != nil {
			t.Fatal(err)
		}
		return number(answer.Header.Revision)
	}
	for n := range keys / perBatch {
		put(n)
	}
	r.Start()
	t.Cleanup(release) // before the rig waits for the worker
	blocking.Store(true)
	put(1)
	<-entered
	before, goroutines := heap(), runtime.NumGoroutine()
	var last string
	for n := range events / perBatch {
		last = put(n)
	}
	r.Await(last)
	// Do not count what etcd and its client hold in this process: old revisions, and the
	// last response.
	compact(t, client)
	last = put(0)
	r.Await(last)
	grown := heap() - before
	t.Logf("heap grew by %d KiB, goroutines from %d to %d", grown>>10, goroutines, runtime.NumGoroutine())
	if grown > 160<<20 { // the history may hold 20,000 objects of 5.6 KiB, 110 MiB; all would be at least 220
		t.Errorf("heap grew by %d MiB", grown>>20)
	}
	if n := runtime.NumGoroutine(); n > goroutines+20 {
		t.Errorf("goroutines grew from %d to %d", goroutines, n)
	}
	if n := lists(t, registry); n != 0 {
		t.Errorf("%v new lists", n)
	}
	if r.Worker.Len() > 1 {
		t.Errorf("%d tasks wait", r.Worker.Len())
	}
	blocking.Store(false)
	release()
	r.Settle(last)
	fold.Check()
}

func keyName(n int) string { return "object-" + number(int64(n)) }

func number(n int64) string { return strconv.FormatInt(n, 10) }

func heap() int64 {
	for range 3 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestClock: if the wall clock of the cache or of the store jumps by an hour, no
// version, order, or event changes.
func TestClock(t *testing.T) {
	t.Parallel()
	var offset atomic.Int64
	clock := func() time.Time { return time.Now().Add(time.Duration(offset.Load())).Round(0) }
	client := etcdtest.Start(t)
	store, err := etcd.New(client, etcd.Options{Schemas: schema.Pilot(), Now: clock})
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	r := cachetest.NewRig(t, over(client, store, register(registry), func(o *mirror.Options) { o.Now = clock }))
	h, w, fold := record(t, client), observe(t, r), r.Fold()
	r.Put("a", "old", 1)
	r.Start()
	created := r.Cache.Snapshot().Get(cachetest.Key("a", "old")).CreationTimestamp
	var last string
	for round := range 60 {
		offset.Store(int64([]time.Duration{0, time.Hour, -time.Hour}[round%3]))
		r.Put("a", "old", round+2)
		last = r.Put("a", keyName(round), round)
		r.Await(last)
		if age := mirrorOf(r).Staleness(); age < 0 {
			t.Errorf("staleness %s", age)
		}
	}
	offset.Store(0)
	r.Settle(last)
	r.Equal()
	fold.Check()
	end := cachetest.Revision(t, last)
	r.Eventually("the truth", func() bool { return h.knows(end) })
	none(t, "against the history of the store", h.judge(w.all()))
	none(t, "revisions", w.monotone())
	if n := lists(t, registry); n != 0 {
		t.Errorf("%v new lists", n)
	}
	if got := r.Cache.Snapshot().Get(cachetest.Key("a", "old")).CreationTimestamp; !got.Equal(created) {
		t.Errorf("created at %s, and now at %s", created, got)
	}
	r.Eventually("reachable", mirrorOf(r).Reachable)
}

// TestAListUnderCompaction lists many keys while every revision is compacted at once: a
// list whose revision is compacted is read again in one response.
func TestAListUnderCompaction(t *testing.T) {
	t.Parallel()
	for name, dial := range map[string]func(testing.TB) (mirrored, direct *clientv3.Client){
		"streamed": func(t testing.TB) (mirrored, direct *clientv3.Client) {
			endpoint := etcdtest.Listen(t)
			return etcdtest.Dial(t, endpoint), etcdtest.Dial(t, endpoint)
		},
		"in pages": func(t testing.TB) (mirrored, direct *clientv3.Client) {
			client := etcdtest.Start(t)
			return client, client
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mirrored, direct := dial(t)
			r := cachetest.NewRig(t, subject(t, mirrored, direct))
			n := longtest.Histories(6_000, 15_000)
			r.Fill(n)
			stop := make(chan struct{})
			var compacting sync.WaitGroup
			compacting.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					r.Put("z", "x", 1)
					r.Put("z", "x", 2)
					compact(t, direct)
				}
			})
			r.Start()
			close(stop)
			compacting.Wait()
			r.Settle(r.Store.Version())
			r.Equal()
			if d := cmp.Diff(n+1, r.Cache.Snapshot().Configs().Len()); d != "" {
				t.Error(d)
			}
		})
	}
}

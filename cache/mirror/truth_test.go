package mirror_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cache/cachetest"
	"github.com/portolan-mesh/portolan/cache/mirror"
	"github.com/portolan-mesh/portolan/storage/etcd"
)

// truth records the history of a store, from a watch without faults.
type truth struct {
	mu       sync.Mutex // guards the fields below
	events   []*clientv3.Event
	revision int64
}

// record begins with a store that was never compacted.
func record(t *testing.T, client *clientv3.Client) *truth {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	h := &truth{}
	watch := client.Watch(ctx, etcd.ConfigPrefix, clientv3.WithPrefix(), clientv3.WithRev(1))
	var running sync.WaitGroup
	running.Go(func() {
		for response := range watch {
			h.mu.Lock()
			h.events = append(h.events, response.Events...)
			h.revision = response.Header.Revision
			h.mu.Unlock()
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	return h
}

func (h *truth) knows(revision int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.revision >= revision
}

// judge compares snapshots, in any order, with the store at their revisions. It returns
// nothing if each equals the store. Then no event is missing or too early, none is
// applied twice or out of order, no revision is split, and nothing older follows a
// progress notification.
func (h *truth) judge(snapshots []*cache.Snapshot) (faults []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	snapshots = slices.Clone(snapshots)
	slices.SortStableFunc(snapshots, func(a, b *cache.Snapshot) int { return int(a.Revision() - b.Revision()) })
	stored := map[string]string{} // versions by path
	rest := h.events
	for _, s := range snapshots {
		for ; len(rest) > 0 && rest[0].Kv.ModRevision <= s.Revision(); rest = rest[1:] {
			path := strings.TrimPrefix(string(rest[0].Kv.Key), etcd.ConfigPrefix)
			if rest[0].Type == clientv3.EventTypeDelete {
				delete(stored, path)
			} else {
				stored[path] = fmt.Sprint(rest[0].Kv.ModRevision)
			}
		}
		cached := map[string]string{}
		for path, object := range s.Configs().All() {
			cached[path] = object.ResourceVersion
		}
		if !maps.Equal(stored, cached) {
			faults = append(faults, fmt.Sprintf("revision %s: the cache has %v, the store had %v", s.Version(), cached, stored))
		}
	}
	return faults
}

// witness collects the snapshots of a cache: those that a follower gets, and those that
// Handled returns.
type witness struct {
	mu       sync.Mutex // guards the fields below
	followed []*cache.Snapshot
	handled  []*cache.Snapshot
	lost     int // how often the follower had to start over
}

// observe must be called before the rig is started.
func observe(t *testing.T, r *cachetest.Rig) *witness {
	t.Helper()
	w := &witness{}
	r.Worker.AtTaskEnd(func() {
		if s := r.Cache.Handled(); s != nil {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.handled = append(w.handled, s)
		}
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for at, err := r.Cache.Await(ctx, 1); ctx.Err() == nil; at, err = r.Cache.Next(ctx, at) {
			w.mu.Lock()
			if err != nil {
				w.lost++
				at = r.Cache.Snapshot()
			}
			w.followed = append(w.followed, at)
			w.mu.Unlock()
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	return w
}

// reached says whether the follower is at a revision. Until its first snapshot, it
// misses what happens.
func (w *witness) reached(revision int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.followed) > 0 && w.followed[len(w.followed)-1].Revision() >= revision
}

func (w *witness) all() []*cache.Snapshot {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Concat(w.followed, w.handled)
}

// monotone returns where a sequence goes back: in revision within an epoch, or in epoch.
func monotone(snapshots []*cache.Snapshot) (faults []string) {
	for i := 1; i < len(snapshots); i++ {
		a, b := snapshots[i-1], snapshots[i]
		if b.Epoch() < a.Epoch() || (b.Epoch() == a.Epoch() && b.Revision() < a.Revision()) {
			faults = append(faults, fmt.Sprintf("revision %s of epoch %d after %s of epoch %d", b.Version(), b.Epoch(), a.Version(), a.Epoch()))
		}
	}
	return faults
}

func (w *witness) monotone() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append(monotone(w.followed), monotone(w.handled)...)
}

// mutant is a watch with an artificial fault.
type mutant struct {
	clientv3.Watcher
	change func(clientv3.WatchResponse) []clientv3.WatchResponse
}

// Watch implements clientv3.Watcher.
func (m mutant) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	in, out := m.Watcher.Watch(ctx, key, opts...), make(chan clientv3.WatchResponse)
	go func() { // ends with in, which ends with ctx
		defer close(out)
		for response := range in {
			for _, r := range m.change(response) {
				select {
				case out <- r:
				case <-ctx.Done():
				}
			}
		}
	}()
	return out
}

// mutate gives a client a watch with a fault.
func mutate(client *clientv3.Client, change func(clientv3.WatchResponse) []clientv3.WatchResponse) *clientv3.Client {
	client.Watcher = mutant{client.Watcher, change}
	return client
}

func register(registry *prometheus.Registry) func(*mirror.Options) {
	return func(o *mirror.Options) { o.Registerer = registry }
}

// metric returns the value of a metric with the given label values, in order; 0 if there
// is none.
func metric(t testing.TB, registry *prometheus.Registry, name string, labels ...string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			var values []string
			for _, l := range m.GetLabel() {
				values = append(values, l.GetValue())
			}
			if family.GetName() == name && slices.Equal(values, labels) {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

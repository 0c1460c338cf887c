package statuses_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cache/mirror"
	"github.com/portolan-mesh/portolan/cache/statuses"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/status"
)

// rig is a cache of statuses over a mirror of a real etcd.
type rig struct {
	t      testing.TB
	client *clientv3.Client
	store  *etcd.Store
	base   *mirror.Cache
	merged *statuses.Cache
}

func start(t testing.TB, client *clientv3.Client) *rig { return startApart(t, client, client) }

// startApart is start with a client of its own for the statuses.
func startApart(t testing.TB, client, own *clientv3.Client) *rig {
	t.Helper()
	store, err := etcd.New(client, etcd.Options{Schemas: schema.Pilot(), RequestTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	worker := cache.NewWorker()
	r := &rig{t: t, client: client, store: store}
	r.base = mirror.New(client, mirror.Options{Worker: worker, Schemas: schema.Pilot(), Store: store, ProgressInterval: 50 * time.Millisecond})
	r.merged = statuses.New(own, statuses.Options{Base: r.base, Schemas: schema.Pilot()})
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	for _, run := range []func(context.Context) error{worker.Run, r.base.Run, r.merged.Run} {
		running.Go(func() {
			if err := run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return r
}

func key(name string) config.Key {
	return config.Key{Kind: schema.VirtualService, Namespace: "shop", Name: name}
}

// startRelayed is startApart with a relay between the statuses and etcd.
func startRelayed(t *testing.T) (*rig, *etcdtest.Relay) {
	t.Helper()
	endpoint := etcdtest.Listen(t)
	relay := etcdtest.NewRelay(t, endpoint)
	return startApart(t, etcdtest.Dial(t, endpoint), etcdtest.Dial(t, relay.Endpoint())), relay
}

// put writes an object, and returns its revision.
func (r *rig) put(name string, round int) int64 {
	r.t.Helper()
	object := &config.Config{
		Meta: config.Meta{GroupVersionKind: schema.VirtualService, Namespace: "shop", Name: name, Labels: map[string]string{"round": strconv.Itoa(round)}},
		Spec: &networking.VirtualService{Hosts: []string{name + ".shop"}},
	}
	revision, err := r.store.Update(r.t.Context(), object)
	if err != nil {
		revision, err = r.store.Create(r.t.Context(), object)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return r.number(revision)
}

func (r *rig) number(revision string) int64 {
	r.t.Helper()
	n, err := strconv.ParseInt(revision, 10, 64)
	if err != nil {
		r.t.Fatal(err)
	}
	return n
}

// writeStatus writes a status, and returns its revision.
func (r *rig) writeStatus(name, message string) int64 {
	r.t.Helper()
	value, err := etcd.EncodeStatus(&status.Report{Key: key(name), UID: "u", Conditions: []status.Condition{{Type: "T", Message: message}}})
	if err != nil {
		r.t.Fatal(err)
	}
	answer, err := r.client.Put(r.t.Context(), etcd.ObjectStatusKey(key(name)), string(value))
	if err != nil {
		r.t.Fatal(err)
	}
	return answer.Header.Revision
}

func (r *rig) await(revision int64) *cache.Snapshot {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 30*time.Second)
	defer cancel()
	s, err := r.merged.Await(ctx, revision)
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// TestOneOrder: whichever watch is first, a snapshot has exactly the configuration and
// the statuses up to its revision, and each change is seen once.
func TestOneOrder(t *testing.T) {
	t.Parallel()
	r := start(t, etcdtest.Dial(t, etcdtest.Listen(t)))
	from := r.await(r.put("a", 0))
	const changes = 300
	wrote := map[int64]string{} // the change of each revision
	var last int64
	random := rand.New(rand.NewPCG(1, 0))
	for i := range changes {
		name := fmt.Sprintf("o%d", random.IntN(20))
		if random.IntN(2) == 0 {
			last = r.put(name, i+1)
			wrote[last] = "object " + key(name).Path()
		} else {
			last = r.writeStatus(name, strconv.Itoa(i))
			wrote[last] = "status " + key(name).Path()
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	seen := map[int64]string{}
	for at := from; at.Revision() < last; {
		next, err := r.merged.Next(ctx, at)
		if err != nil {
			t.Fatal(err)
		}
		for path, object := range next.Configs().All() {
			if before := at.Configs().Value(path); before == nil || before.ResourceVersion != object.ResourceVersion {
				seen[next.Revision()] += "object " + path
			}
		}
		for path, report := range next.Statuses().All() {
			if before := at.Statuses().Value(path); before == nil || before.Revision != report.Revision {
				seen[next.Revision()] += "status " + path
			}
		}
		at = next
	}
	for revision, what := range wrote {
		if seen[revision] != what {
			t.Errorf("revision %d changed %s, and seen was %q", revision, what, seen[revision])
		}
	}
	for revision, what := range seen {
		if wrote[revision] == "" {
			t.Errorf("revision %d changed nothing, and seen was %s", revision, what)
		}
	}
}

// TestAQuietSideHoldsNobodyUp: after a write to either tree, or to neither, the cache
// soon reaches its revision.
func TestAQuietSideHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	r := start(t, etcdtest.Start(t))
	for i := range 20 {
		if s := r.await(r.put("a", i)); s.Get(key("a")).Labels["round"] != strconv.Itoa(i) {
			t.Errorf("round %d is not there at revision %d", i, s.Revision())
		}
	}
	if s := r.await(r.writeStatus("a", "once")); s.Statuses().Value(key("a").Path()).Conditions[0].Message != "once" {
		t.Errorf("the status is not there at revision %d", s.Revision())
	}
	answer, err := r.client.Put(t.Context(), etcd.MetaPrefix+"test", "x")
	if err != nil {
		t.Fatal(err)
	}
	r.await(answer.Header.Revision)
}

// TestSinceBeforeItBegan: a client that resumes from before the cache began gets the
// newer statuses.
func TestSinceBeforeItBegan(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t)
	first := start(t, client)
	first.await(first.put("a", 1)) // from here on it has every revision
	first.writeStatus("a", "old")
	at := first.put("b", 1)
	first.writeStatus("b", "new")
	first.await(first.put("c", 1))

	r := start(t, client)
	r.await(at)
	before, ok := first.merged.Since(t.Context(), at)
	if !ok || before.Statuses().Value(key("a").Path()) == nil || before.Statuses().Value(key("b").Path()) != nil || before.Get(key("b")) != nil {
		t.Errorf("before revision %d: %v, %d objects, %d statuses", at, ok, before.Configs().Len(), before.Statuses().Len())
	}
	if _, ok := r.merged.Since(t.Context(), 1); ok {
		t.Error("revision 1 is within the reach of a cache that began later")
	}
}

// forget makes etcd compact the revisions before a revision, once the base has reached
// it.
func (r *rig) forget(revision int64) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 30*time.Second)
	defer cancel()
	if _, err := r.base.Await(ctx, revision); err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.client.Compact(ctx, revision); err != nil {
		r.t.Fatal(err)
	}
}

// delete deletes an object, and returns the revision of the deletion.
func (r *rig) delete(name string) int64 {
	r.t.Helper()
	revision, err := r.store.Delete(r.t.Context(), schema.VirtualService, name, "shop", "")
	if err != nil {
		r.t.Fatal(err)
	}
	return r.number(revision)
}

// follower records how each snapshot changes the configuration.
type follower struct {
	merged *statuses.Cache
	seen   map[int64]string
	// follow receives from proceed after each snapshot.
	proceed chan struct{}
}

// follow goes on until it gets the status of "a" of the last revision.
func (f *follower) follow(ctx context.Context, at *cache.Snapshot, last func() int64) error {
	for {
		next, err := f.merged.Next(ctx, at)
		if err != nil {
			return err
		}
		for change := range pmap.Diff(at.Configs(), next.Configs()) {
			f.seen[next.Changed()] += change.Key + " "
		}
		at = next
		if said := at.Statuses().Value(key("a").Path()); said != nil && said.Revision >= last() {
			return nil
		}
		select {
		case <-f.proceed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// TestListedAnewPassesNothingOver: the statuses have to be listed again, while the
// configuration is known throughout. A follower still gets every revision of the
// configuration, one by one.
func TestListedAnewPassesNothingOver(t *testing.T) {
	t.Parallel()
	r, relay := startRelayed(t)
	from := r.await(r.put("a", 0))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var last atomic.Int64
	last.Store(math.MaxInt64)
	atOnce, late := make(chan struct{}), make(chan struct{})
	close(atOnce)
	followers := []*follower{{r.merged, map[int64]string{}, atOnce}, {r.merged, map[int64]string{}, late}}
	failed := make(chan error, len(followers))
	for _, f := range followers {
		go func() { failed <- f.follow(ctx, from, last.Load) }()
	}
	wrote := map[int64]string{}
	random := rand.New(rand.NewPCG(2, 0))
	there := map[string]bool{}
	const rounds = 5
	for round := range rounds {
		relay.HoldAnswers()
		for i := range 20 {
			name := fmt.Sprintf("o%d", random.IntN(6))
			switch {
			case random.IntN(3) == 0:
				r.writeStatus(name, strconv.Itoa(i))
				continue
			case there[name] && random.IntN(2) == 0:
				wrote[r.delete(name)] = key(name).Path() + " "
				there[name] = false
			default:
				wrote[r.put(name, 100*round+i+1)] = key(name).Path() + " "
				there[name] = true
			}
		}
		said := r.writeStatus("a", strconv.Itoa(round))
		r.forget(said)
		if round == rounds-1 {
			last.Store(said)
		}
		relay.Cut()
		r.await(said)
		if round == 2 { // the late one sees a part now, and the rest later
			for range 10 {
				select {
				case late <- struct{}{}:
				case <-ctx.Done():
					t.Fatal("the late one waits for what followed")
				}
			}
		}
	}
	close(late)
	for range followers {
		if err := <-failed; err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range followers {
		if diff := gocmp.Diff(wrote, f.seen); diff != "" {
			t.Errorf("what changed at each revision, and what was seen (-want +got):\n%s", diff)
		}
	}
}

// TestListsAnew: a watch whose revision etcd has compacted, and one whose base was
// listed again, start over, and nothing is missed.
func TestListsAnew(t *testing.T) {
	t.Parallel()
	endpoint := etcdtest.Listen(t)
	r := start(t, etcdtest.Dial(t, endpoint))
	r.await(r.put("a", 1))
	relay := etcdtest.NewRelay(t, endpoint)
	cut := start(t, etcdtest.Dial(t, relay.Endpoint()))
	cut.await(r.writeStatus("a", "before"))
	relay.HoldAnswers()
	last := r.writeStatus("a", "while away")
	if _, err := r.client.Compact(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	relay.Cut() // it reconnects, to an etcd that has compacted
	if s := cut.await(last); s.Statuses().Value(key("a").Path()).Conditions[0].Message != "while away" {
		t.Errorf("the status is not there at revision %d", s.Revision())
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := cut.merged.Await(ctx, last+1000); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a revision of the future: %v", err)
	}
}

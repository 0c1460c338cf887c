package lastknown_test

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
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"github.com/portolan-mesh/portolan/discovery/lastknown"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, etcdtest.LeftByMembers()...) }

type item string

func (i *item) Value() ([]byte, error) { return []byte(*i), nil }

// source is a source whose content a test sets.
type source struct {
	name  string
	mu    sync.Mutex // guards known and away
	known lastknown.Known
	away  bool
}

func (s *source) SourceName() string { return s.name }

func (s *source) Known() (lastknown.Known, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known, !s.away
}

func (s *source) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *source) put(key, value string) {
	s.set(func() { i := item(value); s.known.Items = s.known.Items.Set(key, &i) })
}

// rig is a store, a source with a thousand items, and a clock.
type rig struct {
	*etcd.Store
	t      *testing.T
	client *clientv3.Client
	source *source
	mu     sync.Mutex // guards time
	time   time.Time
}

func newRig(t *testing.T) *rig {
	r := &rig{t: t, client: etcdtest.Start(t), source: &source{name: "test/_/one"}, time: time.Unix(1e9, 0).UTC()}
	var err error
	if r.Store, err = etcd.New(r.client, etcd.Options{Schemas: schema.Pilot(), RequestTimeout: time.Minute}); err != nil {
		t.Fatal(err)
	}
	r.source.known.State = []byte("state")
	for i := range 1000 {
		r.source.put(fmt.Sprintf("key%d", i), "first")
	}
	return r
}

func (r *rig) now() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.time
}

func (r *rig) pass(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.time = r.time.Add(d)
}

// save runs a Saver of these sources until end is called.
func (r *rig) save(sources ...lastknown.Source) (end func()) {
	return r.run(lastknown.NewSaver(lastknown.Options{Sources: func() []lastknown.Source { return sources }, Look: time.Millisecond, Now: r.now}))
}

func (r *rig) run(saver *lastknown.Saver) (end func()) {
	ctx, cancel := context.WithCancel(r.t.Context())
	done := make(chan error, 1)
	go func() { done <- saver.Run(ctx, r.Store) }()
	return func() {
		cancel()
		if err := <-done; err != nil && ctx.Err() == nil {
			r.t.Error(err)
		}
	}
}

func (r *rig) recall() lastknown.Recalled {
	r.t.Helper()
	out, err := lastknown.In(r.Store, r.now).Recall(r.t.Context(), r.source.name)
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

func (r *rig) await(what string, holds func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Fatalf("it does not come true: %s", what)
		}
	}
}

func (r *rig) saved() bool { return r.puts()[etcd.RegistryHeadKey(r.source.name)] > 0 }

// puts returns the keys of the tree with their versions, which count how often each was
// written.
func (r *rig) puts() map[string]int64 {
	r.t.Helper()
	answer, err := r.client.Get(r.t.Context(), etcd.RegistryPrefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		r.t.Fatal(err)
	}
	out := map[string]int64{}
	for _, kv := range answer.Kvs {
		out[string(kv.Key)] = kv.Version
	}
	return out
}

// differing returns the keys, except for the head, that were written or deleted since.
func (r *rig) differing(before map[string]int64) (out []string) {
	now := r.puts()
	for key, version := range now {
		if before[key] != version && !strings.HasSuffix(key, "/head") {
			out = append(out, key)
		}
	}
	for key := range before {
		if _, ok := now[key]; !ok {
			out = append(out, key)
		}
	}
	return out
}

// TestSaved: saved content comes back. A change writes only its bucket, and no more often than
// the interval allows. A new leader writes nothing if nothing has changed.
func TestSaved(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	end := r.save(r.source)
	r.await("it is saved", r.saved)
	got := r.recall()
	if string(got.State) != "state" || len(got.Items) != 1000 || string(got.Items["key7"]) != "first" || !got.Confirmed.Equal(r.now()) {
		t.Errorf("%s %d items, %s", got.State, len(got.Items), got.Confirmed)
	}
	before := r.puts()
	r.source.put("key7", "second")
	r.pass(lastknown.DefaultInterval - time.Second)
	r.source.put("key7", "third")
	r.pass(time.Second)
	r.await("the change is saved", func() bool { return string(r.recall().Items["key7"]) == "third" })
	if got := r.differing(before); len(got) != 1 || r.puts()[got[0]] != 2 {
		t.Errorf("one item takes %v: %v", got, r.puts())
	}
	end()

	before = r.puts()
	r.source.put("key8", "fourth")
	end = r.save(r.source)
	r.await("a new leader saves what is new", func() bool { return string(r.recall().Items["key8"]) == "fourth" })
	if got := r.differing(before); len(got) != 1 {
		t.Errorf("a new leader writes %v", got)
	}
	r.source.set(func() { r.source.known.Items = pmap.Map[lastknown.Item]{} })
	r.pass(lastknown.DefaultInterval)
	r.await("all goes", func() bool { return len(r.recall().Items) == 0 })
	end()
	if got := r.puts(); len(got) != 1 {
		t.Errorf("left behind: %v", got)
	}
}

// TestFlush: Flush saves changes at once, however little time has passed. If Run does not run
// or the store does not answer, Flush does not block its caller.
func TestFlush(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	saver := lastknown.NewSaver(lastknown.Options{Sources: func() []lastknown.Source { return []lastknown.Source{r.source} }, Look: time.Hour, Now: r.now})
	flush := func() {
		t.Helper()
		if err := saver.Flush(t.Context()); err != nil {
			t.Error(err)
		}
	}
	flush() // Run does not run
	end := r.run(saver)
	r.await("it is saved", r.saved)
	r.source.put("key7", "second")
	flush()
	if got := string(r.recall().Items["key7"]); got != "second" {
		t.Errorf("after a flush it is %q", got)
	}
	before := r.puts()
	flush()
	if got := r.differing(before); len(got) > 0 {
		t.Errorf("a flush of nothing writes %v", got)
	}
	r.source.set(func() { r.source.away = true })
	r.source.put("key7", "third")
	flush()
	if got := string(r.recall().Items["key7"]); got != "second" {
		t.Errorf("what is not confirmed is saved: %q", got)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := saver.Flush(ended); err == nil {
		t.Error("a flush that cannot end says nothing")
	}
	end()
	flush()
}

// TestSavedOnceAway: what a source confirmed before it went away is saved after that, as of then. It
// does not replace what was confirmed later.
func TestSavedOnceAway(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	saver := lastknown.NewSaver(lastknown.Options{Sources: func() []lastknown.Source { return []lastknown.Source{r.source} }, Look: time.Hour, Now: r.now})
	end := r.run(saver)
	r.await("it is saved", r.saved)
	flushed := func(what, value string, confirmed time.Time) {
		t.Helper()
		if err := saver.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := r.recall(); string(got.Items["key7"]) != value || !got.Confirmed.Equal(confirmed) {
			t.Errorf("%s: it is %q as of %s, want %q as of %s", what, got.Items["key7"], got.Confirmed, value, confirmed)
		}
	}
	change := func(value string, until time.Time) {
		r.source.put("key7", value)
		r.source.set(func() { r.source.known.Until = until })
	}
	r.pass(time.Second)
	lost := r.now()
	r.pass(time.Second)
	change("second", lost)
	flushed("away", "second", lost)
	change("third", lost)
	flushed("a part of it goes on", "third", lost)
	r.pass(time.Hour)
	flushed("nothing has changed", "third", lost)
	change("fourth", time.Time{})
	flushed("it is back", "fourth", r.now())
	r.pass(time.Minute)
	flushed("it has confirmed the same since", "fourth", r.now())
	end()

	end = r.run(saver)
	defer end()
	change("old", lost)
	flushed("a leader that lost it before", "fourth", r.now())
	r.pass(time.Hour)
	flushed("the same, later", "fourth", r.now().Add(-time.Hour))
	change("fifth", r.now())
	flushed("one that lost it later", "fifth", r.now())
}

// TestConfirmedUntilAway: of a source that goes away it is saved when it last confirmed what it had, also if
// nothing has changed since the last save.
func TestConfirmedUntilAway(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	end := r.save(r.source)
	defer end()
	r.await("it is saved", r.saved)
	r.pass(time.Second)
	lost := r.now()
	r.pass(time.Second)
	r.source.set(func() { r.source.known.Until = lost })
	r.await("it is saved until when it was confirmed", func() bool { return r.recall().Confirmed.Equal(lost) })
}

// random returns text that hardly compresses.
func random(seed, bytes int) string {
	from := rand.New(rand.NewPCG(1, uint64(seed)))
	text := make([]byte, bytes)
	for i := range text {
		text[i] = byte(from.Uint32())
	}
	return string(text)
}

// TestFlushOfMuch: a server that stops soon after its start saves all of a large source. After
// that, a change of one item writes only its bucket.
func TestFlushOfMuch(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for i := range 400 {
		r.source.put(fmt.Sprintf("key%d", i), random(i, 50_000))
	}
	saver := lastknown.NewSaver(lastknown.Options{Sources: func() []lastknown.Source { return []lastknown.Source{r.source} }, Now: r.now})
	end := r.run(saver)
	r.await("it has begun", func() bool { return len(r.puts()) > 0 })
	if remark := saver.Remark(); !r.saved() { // else the machine is very fast
		if got := r.recall(); !r.saved() && (!cmp.Equal(got, lastknown.Recalled{}) || !strings.Contains(remark, r.source.name)) {
			t.Errorf("a part of the first save counts: %d items, %q", len(got.Items), remark)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := saver.Flush(ctx); err != nil {
		t.Error(err)
	}
	if got := r.recall(); len(got.Items) != 1000 || string(got.Items["key399"]) != random(399, 50_000) {
		t.Errorf("%d items", len(got.Items))
	}
	before := r.puts()
	r.source.put("key7", random(7000, 50_000))
	if err := saver.Flush(t.Context()); err != nil {
		t.Error(err)
	}
	if got := r.differing(before); len(got) != 1 || string(r.recall().Items["key7"]) != random(7000, 50_000) {
		t.Errorf("one item takes %v", got)
	}
	if got := saver.Remark(); got != "" {
		t.Errorf("once it is saved: %q", got)
	}
	end()
}

// TestTooMuch: what is too large to be saved is named for as long as it is, and all else is saved.
func TestTooMuch(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const large, most = 2 << 20, 3 << 20
	saver := lastknown.NewSaver(lastknown.Options{Sources: func() []lastknown.Source { return []lastknown.Source{r.source} }, Look: time.Millisecond, Now: r.now, MaxSource: most})
	end := r.run(saver)
	defer end()
	save := func(items int, words ...string) {
		t.Helper()
		if err := saver.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := len(r.recall().Items); got != items {
			t.Errorf("%d items are saved, not %d", got, items)
		}
		err := saver.Degraded()
		if (err == nil) != (len(words) == 0) {
			t.Errorf("it says %v", err)
		}
		for _, word := range words {
			if !strings.Contains(fmt.Sprint(err), word) {
				t.Errorf("no %q in: %v", word, err)
			}
		}
	}
	r.await("it runs", r.saved)
	r.source.put("large", random(1, large))
	save(1000, r.source.name, "1 cannot be saved, such as large: it has 2097", "1048576 is the most")
	r.source.put("other", "small")
	save(1001, "such as large")
	r.source.put("large", "small")
	save(1002)
	for i := range 5 {
		r.source.put(fmt.Sprint("half", i), random(i, 900_000))
	}
	save(1005, "2 cannot be saved, such as half", "the source has more than 3145728 bytes")
	for i := range 5 {
		r.source.put(fmt.Sprint("half", i), "small")
	}
	save(1007)
}

// watchedStore calls after once something is written.
type watchedStore struct {
	lastknown.Store
	after func()
}

func (s watchedStore) WriteSide(ctx context.Context, writes []etcd.SideWrite) (bool, error) {
	defer s.after()
	return s.Store.WriteSide(ctx, writes)
}

// TestFewerBuckets: what a version with fewer buckets has saved stays whole while it is saved anew.
func TestFewerBuckets(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const old = 16
	head, err := etcd.EncodeRegistryHead(&etcd.RegistryHead{Source: r.source.name, Confirmed: r.now(), Touched: r.now()})
	writes := []etcd.SideWrite{{Key: etcd.RegistryHeadKey(r.source.name), Value: head, Revision: etcd.Any}}
	for number := range old {
		items := map[string][]byte{}
		for i := number; i < 1000; i += old {
			items[fmt.Sprintf("key%d", i)] = []byte("first")
		}
		value, failed := etcd.EncodeRegistryBucket(r.source.name, uint32(number), items)
		err = errors.Join(err, failed)
		writes = append(writes, etcd.SideWrite{Key: etcd.RegistryBucketKey(r.source.name, uint32(number)), Value: value, Revision: etcd.Any})
	}
	if err == nil {
		_, err = r.WriteSide(t.Context(), writes)
	}
	if err != nil {
		t.Fatal(err)
	}
	saver := lastknown.NewSaver(lastknown.Options{Sources: func() []lastknown.Source { return []lastknown.Source{r.source} }, Look: time.Hour, Now: r.now})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	written := 0
	err = saver.Run(ctx, watchedStore{r.Store, func() {
		written++
		got := r.recall()
		if len(got.Items) != 1000 {
			t.Errorf("after %d writes %d items are saved", written, len(got.Items))
		}
		if string(got.State) == "state" { // it is all saved
			cancel()
		}
	}})
	if err != nil && ctx.Err() == nil {
		t.Fatal(err)
	}
	if keys := len(r.puts()); written < 3 || keys < 500 {
		t.Errorf("%d writes, %d keys", written, keys)
	}
}

// TestNotConfirmed: while the source has not confirmed the served content, the saved content
// stays, however long that takes.
func TestNotConfirmed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	end := r.save(r.source)
	r.await("it is saved", r.saved)
	confirmed := r.recall().Confirmed
	r.source.set(func() { r.source.away, r.source.known.Items = true, pmap.Map[lastknown.Item]{} })
	for range 20 { // longer than MaxAge, but the source is followed
		before := r.puts()[etcd.RegistryHeadKey(r.source.name)]
		r.pass(12 * time.Hour)
		r.await("it is noted that the source is followed", func() bool {
			return r.puts()[etcd.RegistryHeadKey(r.source.name)] > before
		})
	}
	if got := r.recall(); len(got.Items) != 1000 || !got.Confirmed.Equal(confirmed) {
		t.Errorf("%d items, confirmed at %s, which was %s", len(got.Items), got.Confirmed, confirmed)
	}
	end()
}

// TestSourcesComeAndGo: a source that comes while the Saver runs is saved, and what is saved of one that
// goes is deleted. Only the Saver that had it deletes it: another one may not know it yet.
func TestSourcesComeAndGo(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var following atomic.Bool
	sources := func() []lastknown.Source {
		if following.Load() {
			return []lastknown.Source{r.source}
		}
		return nil
	}
	run := func() (end func()) {
		return r.run(lastknown.NewSaver(lastknown.Options{Sources: sources, Look: time.Millisecond, Now: r.now}))
	}
	end := run()
	following.Store(true)
	r.await("it is saved", r.saved)
	end()
	following.Store(false)
	other := &source{name: "test/_/other"}
	end = r.save(other)
	r.await("the leader has looked", func() bool { return r.puts()[etcd.RegistryHeadKey(other.name)] > 0 })
	end()
	if got := r.recall(); len(got.Items) != 1000 {
		t.Errorf("%d items are left", len(got.Items))
	}
	following.Store(true)
	r.source.put("key7", "second")
	end = run()
	defer end()
	r.await("the next leader saves it", func() bool { return string(r.recall().Items["key7"]) == "second" })
	following.Store(false)
	r.await("it is deleted", func() bool { return cmp.Equal(r.recall(), lastknown.Recalled{}) })
	following.Store(true)
	r.await("it is saved again", func() bool { return len(r.recall().Items) == 1000 })
}

// TestNobodyFollows: the saved content of a source that no server follows any more is kept for
// a time. After that it is not used, and is deleted.
func TestNobodyFollows(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	end := r.save(r.source)
	r.await("it is saved", r.saved)
	end()
	r.pass(lastknown.MaxAge - time.Minute)
	other := &source{name: "test/_/other"}
	end = r.save(other)
	r.await("the leader has looked", func() bool { return r.puts()[etcd.RegistryHeadKey(other.name)] > 0 })
	if got := r.recall(); len(got.Items) != 1000 {
		t.Errorf("%d items are left", len(got.Items))
	}
	end()
	r.pass(time.Minute)
	if got := r.recall(); !cmp.Equal(got, lastknown.Recalled{}) {
		t.Errorf("what is too old is used: %d items", len(got.Items))
	}
	end = r.save()
	r.await("it is deleted", func() bool { return len(r.puts()) == 1 })
	end()
}

package cache_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
)

var (
	alpha = config.GroupVersionKind{Group: "test", Version: "v1", Kind: "Alpha"}
	beta  = config.GroupVersionKind{Group: "test", Version: "v1", Kind: "Beta"}
)

func schemas() schema.Set {
	return schema.NewSet(
		&schema.Schema{GroupVersionKind: alpha, Versions: []string{"v1", "v1beta1"}},
		&schema.Schema{GroupVersionKind: beta, Versions: []string{"v1"}},
	)
}

// source makes the snapshots of a feed: one revision per change.
type source struct {
	revision int64
	configs  pmap.Map[*config.Config]
}

func (s *source) set(kind config.GroupVersionKind, names ...string) *cache.Snapshot {
	s.revision++
	for _, name := range names {
		object := &config.Config{Meta: config.Meta{
			GroupVersionKind: kind, Namespace: "ns", Name: name, ResourceVersion: strconv.FormatInt(s.revision, 10),
		}}
		s.configs = s.configs.Set(object.Meta.Key().Path(), object)
	}
	return cache.NewSnapshot(s.revision, s.configs)
}

func (s *source) remove(kind config.GroupVersionKind, name string) *cache.Snapshot {
	s.revision++
	s.configs = s.configs.Delete(keyOf(kind, name).Path())
	return cache.NewSnapshot(s.revision, s.configs)
}

func (s *source) idle() *cache.Snapshot {
	s.revision++
	return cache.NewSnapshot(s.revision, s.configs)
}

func keyOf(kind config.GroupVersionKind, name string) config.Key {
	return config.Key{Kind: kind, Namespace: "ns", Name: name}
}

func describe(old, curr *config.Config, event cache.Event) string {
	version := func(c *config.Config) string {
		if c == nil {
			return "-"
		}
		return c.ResourceVersion
	}
	object := curr
	if object == nil {
		object = old
	}
	return fmt.Sprintf("%s %s %s>%s", event, object.Name, version(old), version(curr))
}

func newFeed(history int) (*cache.Feed, *cache.Worker) {
	w := cache.NewWorker()
	return cache.NewFeed(cache.FeedOptions{Worker: w, Schemas: schemas(), History: history}), w
}

func register(t testing.TB, f *cache.Feed, kind config.GroupVersionKind, h cache.Handler) {
	t.Helper()
	if err := f.RegisterEventHandler(kind, h); err != nil {
		t.Fatal(err)
	}
}

func TestFeedTellsTheDifferenceInKeyThenAppendOrder(t *testing.T) {
	t.Parallel()
	f, w := newFeed(0)
	var got []string
	for _, h := range []string{"1", "2"} {
		register(t, f, alpha, func(o, c *config.Config, e cache.Event) { got = append(got, h+" "+describe(o, c, e)) })
	}
	older := alpha
	older.Version = "v1beta1"
	register(t, f, older, func(o, c *config.Config, e cache.Event) { got = append(got, "3 "+describe(o, c, e)) })
	register(t, f, beta, func(o, c *config.Config, e cache.Event) { got = append(got, "b "+describe(o, c, e)) })
	var s source
	f.Publish(s.set(beta, "z"))       // 1
	f.Publish(s.set(alpha, "b", "a")) // 2
	run(t, w)
	done(w)
	f.Publish(s.set(alpha, "a"))    // 3
	f.Publish(s.remove(alpha, "b")) // 4
	done(w)
	want := []string{
		"1 add a ->2", "2 add a ->2", "3 add a ->2", "1 add b ->2", "2 add b ->2", "3 add b ->2", "b add z ->1",
		"1 update a 2>3", "2 update a 2>3", "3 update a 2>3", "1 delete b 2>-", "2 delete b 2>-", "3 delete b 2>-",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("events (-want +got):\n%s", d)
	}
}

func TestFeedFoldsWhatTheWorkerMissed(t *testing.T) {
	t.Parallel()
	f, w := newFeed(0)
	var got []string
	register(t, f, alpha, func(o, c *config.Config, e cache.Event) { got = append(got, describe(o, c, e)) })
	var s source
	f.Publish(s.set(alpha, "kept", "again", "gone")) // 1
	run(t, w)
	done(w)
	unblock := make(chan struct{})
	w.Post("block", func() { <-unblock })
	f.Publish(s.set(alpha, "fleeting"))    // 2
	f.Publish(s.remove(alpha, "fleeting")) // 3
	f.Publish(s.remove(alpha, "again"))    // 4
	f.Publish(s.set(alpha, "again"))       // 5
	f.Publish(s.set(alpha, "gone"))        // 6
	f.Publish(s.remove(alpha, "gone"))     // 7
	if lag := f.Lag(); lag != 6 {
		t.Errorf("lag %d, want 6", lag)
	}
	got = nil
	close(unblock)
	done(w)
	if d := cmp.Diff([]string{"update again 1>5", "delete gone 1>-"}, got); d != "" {
		t.Errorf("events (-want +got):\n%s", d)
	}
	if f.Lag() != 0 || f.Handled() != f.Snapshot() {
		t.Errorf("lag %d, handled %s, newest %s", f.Lag(), f.Handled().Version(), f.Version())
	}
}

func TestFeedMovesHandledWithTheRevisionAlone(t *testing.T) {
	t.Parallel()
	f, w := newFeed(0)
	register(t, f, alpha, func(*config.Config, *config.Config, cache.Event) { t.Error("an event of nothing") })
	var s source
	f.Publish(s.idle())
	f.Publish(s.idle())
	run(t, w)
	done(w)
	if got := f.Handled().Revision(); got != 2 {
		t.Errorf("handled %d, want 2", got)
	}
}

func TestFeedHasSyncedOnlyAfterHandlersAndHooks(t *testing.T) {
	t.Parallel()
	f, w := newFeed(0)
	var during []bool
	look := func() { during = append(during, f.HasSynced()) }
	register(t, f, alpha, func(*config.Config, *config.Config, cache.Event) { look() })
	w.Post("before", func() {})
	w.AtTaskEnd(look)
	var s source
	f.Publish(s.set(alpha, "a"))
	w.Post("after", look)
	run(t, w)
	done(w)
	// The values are from the previous task's hook, the handler, its hook, and what
	// follows.
	if d := cmp.Diff([]bool{false, false, false, true, true}, during[:5]); d != "" {
		t.Errorf("HasSynced (-want +got):\n%s", d)
	}
}

func TestFeedRefusesLateAndUnknownHandlers(t *testing.T) {
	t.Parallel()
	f, _ := newFeed(0)
	none := func(*config.Config, *config.Config, cache.Event) {}
	if err := f.RegisterEventHandler(config.GroupVersionKind{Group: "test", Kind: "Gamma"}, none); !errors.Is(err, storage.ErrInvalid) {
		t.Errorf("unknown kind: %v, want ErrInvalid", err)
	}
	if err := f.Seal(); err != nil {
		t.Fatal(err)
	}
	if err := f.Seal(); err == nil {
		t.Error("the second Seal was let in")
	}
	if err := f.RegisterEventHandler(alpha, none); err == nil {
		t.Error("a handler was let in after Seal")
	}
}

func TestFeedWithoutAStoreIsReadOnly(t *testing.T) {
	t.Parallel()
	f, _ := newFeed(0)
	var s source
	f.Publish(s.set(alpha, "a", "b"))
	f.Publish(s.set(alpha, "a"))
	f.Publish(s.remove(alpha, "b"))
	f.Publish(s.idle())
	ctx := t.Context()
	object, err := f.Get(ctx, alpha, "a", "ns")
	if err != nil || object.ResourceVersion != "2" {
		t.Errorf("Get = %v, %v", object, err)
	}
	if _, err := f.Get(ctx, alpha, "b", "ns"); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("Get of a deleted object: %v", err)
	}
	if _, err := f.List(ctx, config.GroupVersionKind{Kind: "Gamma"}, ""); !errors.Is(err, storage.ErrInvalid) {
		t.Errorf("List of an unknown kind: %v", err)
	}
	if list, err := f.List(ctx, alpha, "ns"); err != nil || len(list) != 1 {
		t.Errorf("List = %v, %v", list, err)
	}
	_, create := f.Create(ctx, object)
	_, update := f.Update(ctx, object)
	_, remove := f.Delete(ctx, alpha, "a", "ns", "")
	_, _, apply := f.Apply(ctx, nil)
	for i, err := range []error{create, update, remove, apply, f.SetLedger(nil)} {
		if !errors.Is(err, storage.ErrReadOnly) {
			t.Errorf("mutation %d: %v, want ErrReadOnly", i, err)
		}
	}
	for _, test := range []struct {
		version, name, want string
		err                 error
	}{
		{"1", "a", "1", nil}, {"2", "a", "2", nil}, {"4", "a", "2", nil}, {"2", "b", "1", nil},
		{"3", "b", "", storage.ErrNotFound}, {"0", "a", "", storage.ErrCompacted},
		{"5", "a", "", storage.ErrInvalid}, {"x", "a", "", storage.ErrInvalid},
	} {
		got, err := f.GetResourceAtVersion(ctx, test.version, keyOf(alpha, test.name))
		if got != test.want || !errors.Is(err, test.err) {
			t.Errorf("%s at %s = %q, %v; want %q, %v", test.name, test.version, got, err, test.want, test.err)
		}
	}
}

func TestFollowersGetEveryRevision(t *testing.T) {
	t.Parallel()
	f, _ := newFeed(0)
	var s source
	f.Publish(s.set(alpha, "x"))
	const followers, revisions = 3, 200
	var group sync.WaitGroup
	for range followers {
		group.Go(func() {
			at := f.Snapshot()
			for want := at.Revision() + 1; want <= revisions; want++ {
				next, err := f.Next(t.Context(), at)
				if err != nil || next.Revision() != want {
					t.Errorf("after %d came %v, %v", at.Revision(), next.Revision(), err)
					return
				}
				at = next
			}
		})
	}
	for s.revision < revisions {
		f.Publish(s.set(alpha, "x"))
	}
	group.Wait()
}

func TestSinceAndNextWithinABoundedHistory(t *testing.T) {
	t.Parallel()
	f, _ := newFeed(3)
	if _, ok := f.Since(t.Context(), 1); ok {
		t.Error("Since before the first snapshot")
	}
	s := source{revision: 9}
	f.Publish(s.set(alpha, "a")) // 10
	first := f.Snapshot()
	if before, ok := f.Since(t.Context(), 10); !ok || before.Configs().Len() != 0 || before.Revision() != 9 {
		t.Errorf("Since of the first revision = %v, %v; want what was before", before, ok)
	}
	if _, ok := f.Since(t.Context(), 9); ok {
		t.Error("Since reaches behind the first revision")
	}
	s.revision = 19
	f.Publish(s.set(alpha, "a")) // 20
	f.Publish(s.idle())          // 21: the revision only
	f.Publish(s.set(alpha, "a")) // 22
	for since, want := range map[int64]int64{11: 10, 20: 10, 21: 21, 22: 21, 23: 22, 99: 22} {
		if got, ok := f.Since(t.Context(), since); !ok || got.Revision() != want {
			t.Errorf("Since(%d) = %d, %v; want %d", since, got.Revision(), ok, want)
		}
	}
	f.Publish(s.set(alpha, "a")) // 23: 10 is dropped
	if _, ok := f.Since(t.Context(), 20); ok {
		t.Error("Since(20) knows what was forgotten")
	}
	if _, err := f.Next(t.Context(), first); !errors.Is(err, storage.ErrCompacted) {
		t.Errorf("Next of what was forgotten: %v, want ErrCompacted", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.Next(ended, f.Snapshot()); !errors.Is(err, context.Canceled) {
		t.Errorf("Next without a successor: %v, want the error of its context", err)
	}
}

// TestSnapshotsOfOneRevision: a source without revisions changes while the store's
// revision stays. Followers get each change once and in order, and a client that resumes
// at the revision gets all of them.
func TestSnapshotsOfOneRevision(t *testing.T) {
	t.Parallel()
	f, _ := newFeed(0)
	s := source{revision: 8}
	f.Publish(s.set(alpha, "a")) // 9
	f.Publish(s.set(alpha, "a")) // 10
	beside := func(name, version string) {
		object := &config.Config{Meta: config.Meta{GroupVersionKind: alpha, Namespace: "ns", Name: name, ResourceVersion: version, Source: "files"}}
		s.configs = s.configs.Set(object.Key().Path(), object)
		f.Publish(f.Snapshot().Next(s.revision, cache.Content{Configs: s.configs}))
	}
	at := f.Snapshot()
	beside("x", "10") // no revision, although it looks like one
	beside("y", "v1")
	follow := func(from *cache.Snapshot) (got []string) {
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for {
			next, err := f.Next(ended, from)
			if err != nil {
				return got
			}
			for c := range pmap.Diff(from.Configs(), next.Configs()) {
				got = append(got, fmt.Sprintf("%s at %d", c.New.Name, next.Revision()))
			}
			from = next
		}
	}
	if d := cmp.Diff([]string{"x at 10", "y at 10"}, follow(at)); d != "" {
		t.Errorf("a follower (-want +got):\n%s", d)
	}
	f.Publish(s.idle()) // 11
	beside("y", "v2")
	f.Publish(s.set(alpha, "a")) // 12
	for since, want := range map[int64][]string{
		10: {"a at 10", "x at 10", "y at 11", "y at 11", "a at 12"},
		11: {"y at 11", "a at 12"},
		12: {"a at 12"},
		13: nil,
	} {
		from, ok := f.Since(t.Context(), since)
		if !ok {
			t.Errorf("nothing is known before %d", since)
			continue
		}
		if d := cmp.Diff(want, follow(from)); d != "" {
			t.Errorf("from %d (-want +got):\n%s", since, d)
		}
	}
	if then, ok := f.At(10); !ok || then.Get(keyOf(alpha, "y")) == nil {
		t.Error("a revision is without the last change that was made at it")
	}
	// The first snapshot does not show when objects of sources came.
	first := source{configs: s.configs, revision: 19}
	f.Replace(first.set(alpha, "b")) // 20
	before, ok := f.Since(t.Context(), 20)
	if !ok || before.Configs().Len() != 1 || before.Get(keyOf(alpha, "a")) == nil {
		t.Errorf("before the first revision there were %d objects, %v", before.Configs().Len(), ok)
	}
}

// TestSnapshotsOfOneRevisionAreForgotten: as those of different revisions are, and a
// follower gets ErrCompacted.
func TestSnapshotsOfOneRevisionAreForgotten(t *testing.T) {
	t.Parallel()
	f, _ := newFeed(2)
	var s source
	f.Publish(s.set(alpha, "a"))
	first := f.Snapshot()
	var published []*cache.Snapshot
	for _, name := range []string{"b", "c", "d"} {
		s.set(alpha, name)
		f.Publish(first.Next(1, cache.Content{Configs: s.configs}))
		published = append(published, f.Snapshot())
	}
	if _, err := f.Next(t.Context(), first); !errors.Is(err, storage.ErrCompacted) {
		t.Errorf("Next of what was forgotten: %v, want ErrCompacted", err)
	}
	if next, err := f.Next(t.Context(), published[1]); err != nil || next != published[2] {
		t.Errorf("Next of what is kept: %v", err)
	}
	if _, ok := f.Since(t.Context(), 1); ok {
		t.Error("Since knows what was before the forgotten")
	}
}

func TestReplaceBeginsHistoryAnew(t *testing.T) {
	t.Parallel()
	f, w := newFeed(0)
	var got []string
	register(t, f, alpha, func(o, c *config.Config, e cache.Event) { got = append(got, describe(o, c, e)) })
	run(t, w)
	var s source
	f.Publish(s.set(alpha, "a")) // 1
	f.Publish(s.set(alpha, "b")) // 2
	done(w)
	before := f.Snapshot()
	s.revision = 9
	f.Replace(s.remove(alpha, "a")) // 10
	done(w)
	if d := cmp.Diff([]string{"add a ->1", "add b ->2", "delete a 1>-"}, got); d != "" {
		t.Errorf("events (-want +got):\n%s", d)
	}
	if _, ok := f.Since(t.Context(), 5); ok {
		t.Error("Since knows what happened in the gap")
	}
	if next, err := f.Next(t.Context(), before); err != nil || next.Revision() != 10 {
		t.Errorf("a follower gets %v, %v; want revision 10", next.Revision(), err)
	}
	f.Replace(cache.NewSnapshot(4, s.configs)) // the source went back
	if _, err := f.Next(t.Context(), cache.NewSnapshot(10, s.configs)); !errors.Is(err, storage.ErrCompacted) {
		t.Errorf("Next after the source went back: %v, want ErrCompacted", err)
	}
	done(w)
	if f.Handled().Revision() != 4 || f.Lag() != 0 {
		t.Errorf("handled %d, lag %d; want 4, 0", f.Handled().Revision(), f.Lag())
	}
}

func TestAwaitReturnsOnceTheRevisionIsThere(t *testing.T) {
	t.Parallel()
	f, _ := newFeed(0)
	arrived := make(chan int64)
	go func() {
		s, err := f.Await(t.Context(), 2)
		if err != nil {
			t.Error(err)
		}
		arrived <- s.Revision()
	}()
	var s source
	f.Publish(s.idle())
	f.Publish(s.idle())
	if got := <-arrived; got < 2 {
		t.Errorf("awaited revision 2, got %d", got)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.Await(ended, 3); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the error of the context", err)
	}
}

// TestEventsFoldToTheSnapshot: whatever the history and the speed of the worker,
// the events that handlers saw add up to Handled.
func TestEventsFoldToTheSnapshot(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := cache.NewWorker()
		f := cache.NewFeed(cache.FeedOptions{Worker: w, Schemas: schemas(), History: 4})
		var fold pmap.Map[*config.Config]
		for _, kind := range []config.GroupVersionKind{alpha, beta} {
			err := f.RegisterEventHandler(kind, func(old, curr *config.Config, event cache.Event) {
				object := curr
				if event == cache.EventDelete {
					object = old
				}
				path := object.Meta.Key().Path()
				if held := fold.Value(path); held != old || (event == cache.EventAdd) != (old == nil) {
					t.Fatalf("%s of %s: old is not what the handler knew", event, path)
				}
				if curr == nil {
					fold = fold.Delete(path)
				} else {
					fold = fold.Set(path, curr)
				}
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		running.Go(func() { _ = w.Run(ctx) })
		defer running.Wait()
		defer cancel()
		var s source
		names := rapid.SampledFrom([]string{"a", "b", "c"})
		kinds := rapid.SampledFrom([]config.GroupVersionKind{alpha, beta})
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			kind := kinds.Draw(t, "kind")
			switch rapid.IntRange(0, 4).Draw(t, "what") {
			case 0:
				f.Publish(s.remove(kind, names.Draw(t, "name")))
			case 1:
				f.Publish(s.idle())
			case 2:
				done(w)
			case 3:
				f.Replace(s.set(kind, names.Draw(t, "name")))
			default:
				f.Publish(s.set(kind, names.Draw(t, "name"), names.Draw(t, "name")))
			}
		}
		done(w)
		if !pmap.Equal(fold, f.Handled().Configs()) || f.Handled() != f.Snapshot() {
			t.Fatalf("the events do not add up to the snapshot")
		}
	})
}

func BenchmarkPublishOneChange(b *testing.B) {
	for _, n := range []int{1_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			f, w := newFeed(0)
			register(b, f, alpha, func(*config.Config, *config.Config, cache.Event) {})
			run(b, w)
			names := make([]string, n)
			for i := range names {
				names[i] = fmt.Sprintf("object-%06d", i)
			}
			var s source
			f.Publish(s.set(alpha, names...))
			done(w)
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				f.Publish(s.set(alpha, names[i%n]))
			}
			done(w)
		})
	}
}

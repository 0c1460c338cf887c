package xds_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cache/aggregate"
	"github.com/portolan-mesh/portolan/discovery/serviceentry"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/mesh"
)

// split is a replica whose objects are of several sources: a directory before the store,
// the store, and a directory behind it.
type split struct {
	*replica
	all   *aggregate.Cache
	parts []*part // in the order of their priority
	seen  seen
}

// The objects of a part are published by hand.
type part struct {
	name     string
	feed     *cache.Feed
	followed *followed
	configs  pmap.Map[*config.Config]
	revision int64
}

// followed is a source that knows which of its snapshots was merged last: the one that Next
// was last called with.
type followed struct {
	still
	merged atomic.Pointer[cache.Snapshot]
}

func (f *followed) Next(ctx context.Context, after *cache.Snapshot) (*cache.Snapshot, error) {
	f.merged.Store(after)
	return f.still.Next(ctx, after)
}

// seen collects what handlers were called with: the objects by path, and wrong events.
type seen struct {
	mu      sync.Mutex // guards the fields below
	objects map[string]*config.Config
	faults  []string
}

func (s *seen) take(old, now *config.Config, event cache.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := now
	if of == nil {
		of = old
	}
	path := of.Key().Path()
	if last := s.objects[path]; event == cache.EventAdd && last != nil || event != cache.EventAdd && last != old || event == cache.EventUpdate && old == now {
		s.faults = append(s.faults, fmt.Sprintf("%v of %s, from %p to %p, after %p", event, of.Key(), old, now, last))
	}
	if event == cache.EventDelete {
		delete(s.objects, path)
		return
	}
	s.objects[path] = now
}

func newSplit(t tb) *split {
	t.Helper()
	s := &split{replica: &replica{t: t, worker: cache.NewWorker()}, seen: seen{objects: map[string]*config.Config{}}}
	o := aggregate.Options{Worker: s.worker}
	for _, name := range []string{"first", "etcd", "last"} {
		p := &part{name: name, feed: cache.NewFeed(cache.FeedOptions{Worker: cache.NewWorker(), Schemas: schema.Pilot()})}
		p.followed = &followed{still: still{p.feed}}
		s.parts = append(s.parts, p)
		o.Sources = append(o.Sources, aggregate.Source{Name: name, Cache: p.followed})
		s.on(p, func() { s.commit() })
	}
	o.Store = s.parts[1].followed
	var err error
	if s.all, err = aggregate.MakeCache(o); err != nil {
		t.Fatal(err)
	}
	for _, kind := range schema.Pilot().All() {
		if err := s.all.RegisterEventHandler(kind.GroupVersionKind, s.seen.take); err != nil {
			t.Fatal(err)
		}
	}
	s.start(s.all, serviceentry.Switches{})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = s.all.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	s.merge()
	return s
}

// on does something to the objects of a source.
func (s *split) on(p *part, do func()) {
	s.feed, s.configs, s.revision = p.feed, p.configs, p.revision
	do()
	p.configs, p.revision = s.configs, s.revision
}

// wanted returns the objects that count, by path: those of the first source that has the
// path.
func (s *split) wanted() map[string]*config.Config {
	out := map[string]*config.Config{}
	for _, p := range s.parts {
		for path, object := range p.configs.All() {
			if out[path] == nil {
				out[path] = object
			}
		}
	}
	return out
}

// merge waits until the server has handled what the sources have, and derives the next
// context.
func (s *split) merge() {
	s.t.Helper()
	for end := time.Now().Add(time.Minute); !s.merged(); time.Sleep(50 * time.Microsecond) {
		if time.Now().After(end) {
			s.t.Fatalf("the sources are not merged")
		}
	}
	handled, want := s.all.Handled().Configs(), s.wanted()
	if handled.Len() != len(want) {
		s.t.Fatalf("%d objects were merged, want %d", handled.Len(), len(want))
	}
	for path, object := range want {
		if got := handled.Value(path); got == nil || got.Spec != object.Spec {
			s.t.Fatalf("%s is %v, want %v", path, got, object)
		}
	}
	s.push()
}

// merged says whether the last snapshot of each source was merged, and handled.
func (s *split) merged() bool {
	for _, p := range s.parts {
		if p.followed.merged.Load() != p.feed.Snapshot() {
			return false
		}
	}
	handled := s.all.Handled()
	return handled != nil && handled == s.all.Snapshot()
}

// checkEvents fails unless handlers were called once for each change.
func (s *split) checkEvents(t tb) {
	t.Helper()
	s.settle()
	s.seen.mu.Lock()
	defer s.seen.mu.Unlock()
	handled := s.all.Handled().Configs()
	for path, object := range handled.All() {
		if s.seen.objects[path] != object {
			s.seen.faults = append(s.seen.faults, "handlers have another "+path)
		}
	}
	if len(s.seen.objects) != handled.Len() {
		s.seen.faults = append(s.seen.faults, fmt.Sprintf("handlers have %d objects, want %d", len(s.seen.objects), handled.Len()))
	}
	if len(s.seen.faults) > 0 {
		t.Fatalf("%s", strings.Join(s.seen.faults, "\n"))
	}
}

// move moves an object to another source. If early is set, the new source has it before the
// old one loses it, else after.
func (s *split) move(path string, from, to *part, early bool) {
	object := from.configs.Value(path)
	if object == nil || from == to {
		return
	}
	take := func() { s.on(from, func() { s.remove(object); s.commit() }) }
	give := func() { s.on(to, func() { s.set(object); s.commit() }) }
	if early {
		give()
		take()
	} else {
		take()
		give()
	}
}

// TestObjectsMoveBetweenSources: objects come, go and move between sources that shadow one
// another. Handlers are told of each change once. The mesh derived change by change equals
// the one derived from nothing, and that of a store which always had the objects that count.
func TestObjectsMoveBetweenSources(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		draw := sources{t}
		s := newSplit(t)
		var history []string
		for range rapid.IntRange(1, 8).Draw(t, "steps") {
			for range rapid.IntRange(1, 4).Draw(t, "changes") {
				p := rapid.SampledFrom(s.parts).Draw(t, "source")
				if p.configs.Len() > 0 && draw.one("what", "write", "move") == "move" {
					var paths []string
					for path := range p.configs.Keys() {
						paths = append(paths, path)
					}
					path, to := rapid.SampledFrom(paths).Draw(t, "object"), rapid.SampledFrom(s.parts).Draw(t, "to")
					early := rapid.Bool().Draw(t, "early")
					history = append(history, fmt.Sprint("move ", path, " ", p.name, "->", to.name, " ", early))
					s.move(path, p, to, early)
					continue
				}
				e := map[string]func() event{"config": draw.configs, "routing": draw.routing}[draw.one("kind of change", "config", "routing")]()
				history = append(history, p.name+": "+e.what)
				s.on(p, func() { e.do(s.replica) })
			}
			s.merge()
			s.checkEvents(t)
			if d := cmp.Diff(s.versionsIn(mesh.New(s.server.Inputs())), s.versions()); d != "" {
				t.Fatalf("resources (-from nothing +change by change)\n%s\n%s", d, strings.Join(history, "\n"))
			}
		}
		whole := newReplica(t, serviceentry.Switches{})
		for _, object := range s.wanted() {
			whole.set(object)
		}
		whole.commit()
		whole.push()
		if d := cmp.Diff(whole.rows(), s.rows()); d != "" {
			t.Fatalf("rows (-of one store +of several sources)\n%s\n%s", d, strings.Join(history, "\n"))
		}
		if d := cmp.Diff(whole.versions(), s.versions()); d != "" {
			t.Fatalf("resources (-of one store +of several sources)\n%s\n%s", d, strings.Join(history, "\n"))
		}
	})
}

package file_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cache/cachetest"
	"github.com/portolan-mesh/portolan/cache/file"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// scene is a cache that follows a directory.
type scene struct {
	*file.Cache
	t   testing.TB
	dir string
	log *lines
}

// follow runs a cache over a directory until the test ends.
func follow(t testing.TB, dir string, change ...func(*file.Options)) *scene {
	t.Helper()
	s, _ := launch(t, dir, change...)
	s.await("it has synced", s.HasSynced)
	return s
}

// launch is follow without the wait; stop ends the cache.
func launch(t testing.TB, dir string, change ...func(*file.Options)) (s *scene, stop func()) {
	t.Helper()
	log := &lines{}
	o := file.Options{
		Dir: dir, Worker: cache.NewWorker(), Schemas: schema.Pilot(), Timing: quick, Log: slog.New(slog.NewTextHandler(log, nil)),
	}
	for _, change := range change {
		change(&o)
	}
	s = &scene{Cache: file.New(o), t: t, dir: dir, log: log}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, run := range []func(context.Context) error{o.Worker.Run, s.Run} {
		running.Go(func() {
			if err := run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(stop)
	return s, stop
}

// lines collects log lines.
type lines struct {
	mu   sync.Mutex // guards text
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) count(what string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), what)
}

func (s *scene) await(what string, holds func() bool) {
	s.t.Helper()
	for end := time.Now().Add(2 * time.Minute); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("it does not come true that %s; problems: %v; degraded: %v; objects: %v", what, s.Problems(), s.Degraded(), s.rounds())
		}
	}
}

func (s *scene) path(name string) string { return filepath.Join(s.dir, filepath.FromSlash(name)) }

// put writes a file at once.
func (s *scene) put(name, text string) {
	s.t.Helper()
	must(s.t, os.MkdirAll(filepath.Dir(s.path(name)), 0o755))
	replace(s.t, s.path(name), text)
}

// round returns the round of a service entry in the namespace a, "-" for none.
func (s *scene) round(name string) string {
	return cachetest.Round(s.Snapshot().Get(cachetest.Key("a", name)))
}

func (s *scene) rounds() (out []string) {
	for object := range s.Snapshot().List(schema.ServiceEntry, "") {
		if out = append(out, object.Name+" "+cachetest.Round(object)); len(out) > 20 {
			break
		}
	}
	return out
}

// awaitRound waits until a service entry has a round, "-" for gone.
func (s *scene) awaitRound(name, round string) {
	s.t.Helper()
	s.await(name+" is of round "+round, func() bool { return s.round(name) == round })
}

// snapshots returns all snapshots since the first one.
func (s *scene) snapshots() (out []*cache.Snapshot) {
	s.t.Helper()
	for revision := int64(1); revision <= s.Snapshot().Revision(); revision++ {
		snapshot, ok := s.At(revision)
		if !ok {
			s.t.Fatalf("there is no snapshot %d", revision)
		}
		out = append(out, snapshot)
	}
	return out
}

// neverWithout fails if any snapshot since a revision lacks an object.
func (s *scene) neverWithout(from int64, names ...string) {
	s.t.Helper()
	for _, snapshot := range s.snapshots()[from-1:] {
		for _, name := range names {
			if snapshot.Get(cachetest.Key("a", name)) == nil {
				s.t.Errorf("snapshot %s is without %s", snapshot.Version(), name)
			}
		}
	}
}

func (s *scene) awaitProblem(words ...string) cache.Problem {
	s.t.Helper()
	var found cache.Problem
	s.await("there is a problem of "+strings.Join(words, ", "), func() bool {
		all := s.Problems()
		i := slices.IndexFunc(all, func(p cache.Problem) bool {
			return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(p.String(), word) })
		})
		if i >= 0 {
			found = all[i]
		}
		return i >= 0
	})
	return found
}

func (s *scene) awaitSound() {
	s.t.Helper()
	s.await("nothing is wrong", func() bool { return len(s.Problems()) == 0 && s.Degraded() == nil })
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// entry returns a service entry of the namespace a, as text.
func entry(t testing.TB, name string, round int) string {
	t.Helper()
	return yamlOf(t, cachetest.ServiceEntry("a", name, round))
}

// entries returns several documents.
func entries(t testing.TB, round int, names ...string) string {
	t.Helper()
	var all []string
	for _, name := range names {
		all = append(all, entry(t, name, round))
	}
	return strings.Join(all, "---\n")
}

// broken returns a document that shows its name and has a fault.
func broken(name string) string {
	return fmt.Sprintf("apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: %q, namespace: a}\nspec: {hosts: [], ports: 7}\n", name)
}

func key(kind config.GroupVersionKind, namespace, name string) config.Key {
	return config.Key{Kind: kind, Namespace: namespace, Name: name}
}

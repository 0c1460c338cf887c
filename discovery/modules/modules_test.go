package modules_test

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	extensions "istio.io/api/extensions/v1alpha1"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/discovery/modules"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// fixture runs a Fetcher whose configuration the test sets.
type fixture struct {
	t       *testing.T
	worker  *cache.Worker
	fetcher *modules.Fetcher
	follows chan struct{} // a token for each Follow

	mu       sync.Mutex // guards what follows
	configs  pmap.Map[*config.Config]
	snapshot *cache.Snapshot
	revision int64
}

func newFixture(t *testing.T) *fixture { return newPatient(t, time.Millisecond) }

// newPatient is newFixture with a first wait between attempts.
func newPatient(t *testing.T, wait time.Duration) *fixture {
	f := &fixture{t: t, worker: cache.NewWorker(), follows: make(chan struct{}, 1000)}
	f.fetcher = modules.New(modules.Options{Worker: f.worker, Retry: wait, Longest: 10 * wait, Configs: func() *cache.Snapshot {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.snapshot
	}})
	f.worker.AtTaskEnd(f.fetcher.Follow)
	f.worker.AtTaskEnd(func() { f.follows <- struct{}{} })
	var running sync.WaitGroup
	running.Go(func() { _ = f.worker.Run(t.Context()) })
	running.Go(func() { _ = f.fetcher.Run(t.Context()) })
	t.Cleanup(running.Wait) // the context of the test has ended
	return f
}

// plugin is a WasmPlugin of a URL and a sum.
func plugin(name, url, sum string) *config.Config {
	return &config.Config{
		Meta: config.Meta{GroupVersionKind: schema.WasmPlugin, Namespace: "shop", Name: name},
		Spec: &extensions.WasmPlugin{Url: url, Sha256: sum},
	}
}

// put sets the WasmPlugins.
func (f *fixture) put(objects ...*config.Config) {
	f.mu.Lock()
	f.configs = pmap.Map[*config.Config]{}
	for _, c := range objects {
		f.configs = f.configs.Set(c.Key().Path(), c)
	}
	f.revision++
	f.snapshot = cache.NewSnapshot(f.revision, f.configs)
	f.mu.Unlock()
	f.worker.Post("configs", func() {})
}

// await waits until the set is as it should be.
func (f *fixture) await(what string, is func(modules.Set) bool) {
	f.t.Helper()
	for {
		if is(f.fetcher.Set()) {
			return
		}
		select {
		case <-f.follows:
		case <-time.After(20 * time.Second):
			f.t.Fatalf("%s is not so", what)
		}
	}
}

func sumOf(content string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(content))) }

// TestFetcher: a module is fetched once for all plugins, tried again until it is there, verified by its
// sum, and forgotten when nobody needs it. A plugin whose module is missing goes on as it was before.
func TestFetcher(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	contents, asked := map[string]string{"/a": "first"}, map[string]int{}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		asked[r.URL.Path]++
		if text, ok := contents[r.URL.Path]; ok {
			_, _ = w.Write([]byte(text))
			return
		}
		http.NotFound(w, r)
	}))
	t.Cleanup(web.Close)
	set := func(path, text string) {
		mu.Lock()
		defer mu.Unlock()
		contents[path] = text
	}
	f := newFixture(t)
	one, two := plugin("one", web.URL+"/a", sumOf("first")), plugin("two", web.URL+"/a", strings.ToUpper(sumOf("first")))
	file := plugin("file", "file:///a", "")
	f.put(one, two, file)
	f.await("the module is there", func(s modules.Set) bool { return s.Has(one) && s.Has(two) && s.Has(file) })
	if got := f.fetcher.Set().Version(two); string(got.Module.Bytes) != "first" || got.Config != two || got.Missing {
		t.Errorf("%+v", got)
	}
	if got := f.fetcher.Set().Version(file); got.Module != nil || got.Config != file || got.Missing {
		t.Errorf("%+v", got)
	}
	if mu.Lock(); asked["/a"] != 1 || !f.fetcher.HasSynced() {
		t.Errorf("asked %v, synced %v", asked, f.fetcher.HasSynced())
	}
	mu.Unlock()

	next, fresh := plugin("one", web.URL+"/b", sumOf("second")), plugin("three", web.URL+"/b", sumOf("second"))
	f.put(next, two, fresh)
	f.await("the fault is known", func(s modules.Set) bool { return strings.Contains(s.Fault(next), web.URL+"/b: it answers 404") })
	lacking := []string{next.Key().Path(), fresh.Key().Path()}
	if got := f.fetcher.Set().Lacking(); !slices.Equal(slices.Sorted(maps.Keys(maps.Collect(got))), lacking) {
		t.Errorf("%v lack their module, want %v", slices.Sorted(maps.Keys(maps.Collect(got))), lacking)
	}
	if got := f.fetcher.Set().Version(next); got.Config != one || got.Missing || string(got.Module.Bytes) != "first" {
		t.Errorf("it does not go on as before: %+v", got)
	}
	if got := f.fetcher.Set().Version(fresh); got.Config != fresh || !got.Missing {
		t.Errorf("a new one: %+v", got)
	}
	set("/b", "another")
	f.await("the sum is wrong", func(s modules.Set) bool { return strings.Contains(s.Fault(next), "has the sum "+sumOf("another")) })
	set("/b", "second")
	f.await("the module is there", func(s modules.Set) bool {
		return s.Version(next).Config == next && s.Version(fresh).Module != nil && s.Fault(next) == ""
	})
	f.put(next)
	f.await("the former is forgotten", func(s modules.Set) bool { return !s.Has(one) && s.Has(next) })
	f.put(one)
	f.await("it is fetched again", func(s modules.Set) bool { return s.Version(one).Config == one })
	f.put()
	f.await("nothing is left", func(s modules.Set) bool { return s == modules.Set{} })
}

// TestWrittenAgain: a plugin that is written again is tried at once, however long the wait is.
func TestWrittenAgain(t *testing.T) {
	t.Parallel()
	var there atomic.Bool
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if there.Load() {
			_, _ = w.Write([]byte("first"))
			return
		}
		http.NotFound(w, r)
	}))
	t.Cleanup(web.Close)
	f := newPatient(t, time.Hour)
	one := plugin("one", web.URL, sumOf("first"))
	f.put(one)
	f.await("the fault is known", func(s modules.Set) bool { return s.Fault(one) != "" })
	there.Store(true)
	again := plugin("one", web.URL, sumOf("first"))
	again.Annotations = map[string]string{"mended": "yes"}
	f.put(again)
	f.await("the module is there", func(s modules.Set) bool { return s.Has(again) })
}

// TestWhatIsNotTaken: what is too large, or behind a redirect to somewhere else, is not taken, and an
// object that nobody would accept has no effect.
func TestWhatIsNotTaken(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/large" {
			_, _ = w.Write(make([]byte, modules.MaxBytes+1))
			return
		}
		http.Redirect(w, r, "ftp://elsewhere.example/", http.StatusFound)
	}))
	t.Cleanup(web.Close)
	f := newFixture(t)
	large, moved, image := plugin("large", web.URL+"/large", sumOf("a")), plugin("moved", web.URL+"/moved", sumOf("b")), plugin("image", "oci://a/b", "")
	f.put(large, moved, image)
	f.await("the faults are known", func(s modules.Set) bool {
		return strings.Contains(s.Fault(large), "more than 16 MiB") && strings.Contains(s.Fault(moved), "it redirects to ftp://elsewhere.example/")
	})
	if got := f.fetcher.Set().Version(image); got != (modules.Version{}) {
		t.Errorf("%+v", got)
	}
}

package rest_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cache/aggregate"
	cachememory "github.com/portolan-mesh/portolan/cache/memory"
	"github.com/portolan-mesh/portolan/cache/rest"
	"github.com/portolan-mesh/portolan/cache/rest/resttest"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/memory"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// files is a read-only source that is published by hand.
type files struct{ *cache.Feed }

func (files) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// publish publishes ServiceEntries of the namespace shop, and nothing else.
func (f files) publish(t testing.TB, version string, names ...string) {
	t.Helper()
	var configs pmap.Map[*config.Config]
	for _, name := range names {
		documents, err := config.Decode("test", []byte(entry(name, "")), schema.Pilot().Type)
		if err != nil {
			t.Fatal(err)
		}
		object := documents[0].Config
		object.ResourceVersion = version
		configs = configs.Set(object.Key().Path(), object)
	}
	f.Publish(cache.NewSnapshot(f.Snapshot().Revision()+1, configs))
}

// startWithFiles runs an API over a store and a source behind it.
func startWithFiles(t testing.TB) (*resttest.Server, files) {
	t.Helper()
	source := files{cache.NewFeed(cache.FeedOptions{Worker: cache.NewWorker(), Schemas: schema.Pilot()})}
	source.publish(t, "v1", "web")
	var all *aggregate.Cache
	s := resttest.Start(t, 0, func(o *rest.Options) {
		stored := cachememory.New(o.Store.(*memory.Store), cachememory.Options{Worker: cache.NewWorker()})
		var err error
		all, err = aggregate.MakeCache(aggregate.Options{
			Worker: cache.NewWorker(), Store: stored, FirstSync: time.Hour,
			Sources: []aggregate.Source{{Name: "store", Cache: stored}, {Name: "files", Cache: source, Place: func(key config.Key) string { return key.Name + ".yaml" }}},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		running.Go(func() { _ = all.Run(ctx) })
		t.Cleanup(func() {
			cancel()
			running.Wait()
		})
		wait, stop := context.WithTimeout(ctx, 10*time.Second)
		defer stop()
		if _, err := all.Await(wait, 1); err != nil {
			t.Fatal(err)
		}
		o.Cache, o.Permit, o.Place = all, all.Permit, all.Place
	})
	return s, source
}

// TestObjectsOfAnotherSource are read as others are, and not changed here: the answer
// names the source. The store may make one that goes before.
func TestObjectsOfAnotherSource(t *testing.T) {
	t.Parallel()
	s, _ := startWithFiles(t)
	read := parse[object](t, s.Do(t, "GET", shopEntries+"/web", "").Body).Metadata
	if read.Name != "web" || read.ResourceVersion != "v1" || read.Annotations[config.SourceAnnotation] != "files, web.yaml" {
		t.Fatalf("read %+v", read)
	}
	batchOf := func(verb string) string {
		return `{"apiVersion":"portolan.io/v1","kind":"Batch","operations":[{"verb":"` + verb + `","apiVersion":"networking.istio.io/v1","kind":"ServiceEntry","namespace":"shop","name":"web"}]}`
	}
	for _, test := range []struct{ method, path, body string }{
		{"PUT", shopEntries + "/web", entry("web", "")},
		{"PUT", shopEntries + "/web?dryRun=All", entry("web", "")},
		{"DELETE", shopEntries + "/web", ""},
		{"DELETE", shopEntries + "/web?dryRun=All", ""},
		{"POST", "/apis/portolan.io/v1/batches", batchOf("delete")},
	} {
		a := s.Do(t, test.method, test.path, test.body)
		if a.Code != http.StatusMethodNotAllowed || !strings.Contains(a.Body, "serviceentry/shop/web: read only: the object comes from the source files, web.yaml: change it there") {
			t.Errorf("%s %s: %d %s", test.method, test.path, a.Code, a.Body)
		}
	}
	if a := s.Do(t, "POST", shopEntries+"?dryRun=All", entry("web", "")); a.Code != http.StatusCreated {
		t.Errorf("a dry run of what shadows it: %d %s", a.Code, a.Body)
	}
	if a := s.Do(t, "GET", shopEntries, ""); !strings.Contains(a.Body, `"portolan.io/source":"files, web.yaml"`) {
		t.Errorf("listed %s", a.Body)
	}
	made := create(t, s, "web", `,"annotations":{"portolan.io/source":"files, web.yaml"}`)
	if made.Annotations != nil {
		t.Errorf("the source was stored: %v", made.Annotations)
	}
	read = parse[object](t, s.Do(t, "GET", shopEntries+"/web", "").Body).Metadata
	if read.UID != made.UID {
		t.Errorf("read %+v after creating %+v", read, made)
	}
	if a := s.Do(t, "DELETE", shopEntries+"/web", ""); a.Code != http.StatusOK {
		t.Errorf("deleted: %d %s", a.Code, a.Body)
	}
	if read = parse[object](t, s.Do(t, "GET", shopEntries+"/web", "").Body).Metadata; read.ResourceVersion != "v1" {
		t.Errorf("read %+v after that", read)
	}
}

// TestAWatchFollowsAnotherSource at the revision of the store. A client that resumes from
// the version of an object of that source must list again.
func TestAWatchFollowsAnotherSource(t *testing.T) {
	t.Parallel()
	s, source := startWithFiles(t)
	list := parse[struct {
		Metadata struct{ ResourceVersion string }
		Items    []object
	}](t, s.Do(t, "GET", shopEntries, "").Body)
	if len(list.Items) != 1 {
		t.Fatalf("listed %+v", list)
	}
	source.publish(t, "v2", "api")
	source.publish(t, "v3", "api")
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+shopEntries+"?watch=true&resourceVersion="+list.Metadata.ResourceVersion, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := s.HTTP.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var state []string // names and versions, without what comes again
	for lines := bufio.NewScanner(response.Body); len(state) < 3 && lines.Scan(); {
		var e struct {
			Type   string
			Object object
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		if said := e.Type + " " + e.Object.Metadata.Name; e.Type != "ADDED" || e.Object.Metadata.Name != "web" {
			state = append(state, said)
		}
	}
	if got := strings.Join(state, ", "); got != "ADDED api, DELETED web, MODIFIED api" {
		t.Errorf("the watch told %s", got)
	}
	if a := s.Do(t, "GET", shopEntries+"?watch=true&resourceVersion=v3", ""); a.Code != http.StatusGone {
		t.Errorf("a watch from the version of a file: %d %s", a.Code, a.Body)
	}
}

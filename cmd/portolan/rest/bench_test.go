package rest_test

import (
	"bufio"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"testing"
	"time"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/cache/cachetest"
	"github.com/portolan-mesh/portolan/cache/mirror"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/resttest"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
	"github.com/portolan-mesh/portolan/storage/schema"
)

const many = 10_000

// filled starts an API over many ServiceEntries.
func filled(b *testing.B) *resttest.Server {
	b.Helper()
	s := resttest.Start(b, 0, nil)
	ops := make([]storage.Op, many)
	for i := range ops {
		ops[i] = storage.Op{Verb: storage.Create, Config: service(i, "10.0.0.1")}
	}
	if _, _, err := s.Store.Apply(b.Context(), ops); err != nil {
		b.Fatal(err)
	}
	if _, err := s.Cache.Await(b.Context(), 2); err != nil {
		b.Fatal(err)
	}
	return s
}

func service(i int, address string) *config.Config {
	name := fmt.Sprintf("service-%05d", i)
	return &config.Config{
		Meta: config.Meta{GroupVersionKind: schema.ServiceEntry, Namespace: "shop", Name: name},
		Spec: &networking.ServiceEntry{
			Hosts: []string{name + ".shop"}, Resolution: networking.ServiceEntry_STATIC,
			Ports:     []*networking.ServicePort{{Number: 80, Name: "http", Protocol: "HTTP"}},
			Endpoints: []*networking.WorkloadEntry{{Address: address}},
		},
	}
}

func BenchmarkListOf10000(b *testing.B) {
	s := filled(b)
	b.ReportAllocs()
	for b.Loop() {
		if a := s.Do(b, "GET", entries, ""); a.Code != 200 {
			b.Fatal(a.Code)
		}
	}
}

// BenchmarkWatchOf10000 measures one change among many objects, from the write to the
// watcher.
func BenchmarkWatchOf10000(b *testing.B) {
	s := filled(b)
	next, end := eventsOf(b, s, entries+"?watch=true&resourceVersion="+change(b, s, 0, 0), "application/json")
	defer end()
	b.ReportAllocs()
	for i := 1; b.Loop(); i++ {
		change(b, s, i%many, i)
		next()
	}
}

// change gives one object the address of a number, and returns its version once the cache has it.
func change(b *testing.B, s *resttest.Server, i, n int) string {
	b.Helper()
	version, err := s.Store.Update(b.Context(), service(i, fmt.Sprintf("10.1.%d.%d", n/250%250, n%250)))
	if err != nil {
		b.Fatal(err)
	}
	await(b, s, version)
	return version
}

// await waits until the cache has a version.
func await(b *testing.B, s *resttest.Server, version string) {
	b.Helper()
	revision, _ := strconv.ParseInt(version, 10, 64)
	if _, err := s.Cache.Await(b.Context(), revision); err != nil {
		b.Fatal(err)
	}
}

// eventsOf begins a watch. next waits for its next event.
func eventsOf(b *testing.B, s *resttest.Server, path, accept string) (next, end func()) {
	b.Helper()
	r, err := http.NewRequestWithContext(b.Context(), "GET", s.URL+path, nil)
	if err != nil {
		b.Fatal(err)
	}
	r.Header.Set("Accept", accept)
	response, err := (&http.Client{Timeout: time.Hour, Transport: s.HTTP.Transport}).Do(r)
	if err != nil {
		b.Fatal(err)
	}
	if response.StatusCode != http.StatusOK {
		b.Fatal(response.Status)
	}
	events := bufio.NewReaderSize(response.Body, 1<<16)
	next = func() {
		if _, err := events.ReadSlice('\n'); err != nil {
			b.Fatal(err)
		}
	}
	return next, func() { _ = response.Body.Close() }
}

// inEtcd starts an API over an etcd with one ServiceEntry.
func inEtcd(b *testing.B) *resttest.Server {
	b.Helper()
	r := cachetest.NewRig(b, mirrored(b, etcdtest.Start(b)))
	r.Start()
	s := resttest.Start(b, 0, func(o *rest.Options) { o.Store, o.Cache = r.Store, r.Cache.(*mirror.Cache) })
	if _, err := r.Store.Create(b.Context(), service(0, "10.0.0.1")); err != nil {
		b.Fatal(err)
	}
	return s
}

var backends = []struct {
	name  string
	start func(*testing.B) *resttest.Server
}{{"memory", filled}, {"etcd", inEtcd}}

// BenchmarkUpdate and BenchmarkServerSideApply change one object by a PUT and by a server-side
// apply, through the API. An object has managed fields once somebody has applied it server-side.
func BenchmarkUpdate(b *testing.B) {
	for _, backend := range backends {
		s := backend.start(b)
		b.Run(backend.name+", without managed fields", func(b *testing.B) { writes(b, s, false) })
		move(b, s, 1, true)
		b.Run(backend.name+", with managed fields", func(b *testing.B) { writes(b, s, false) })
	}
}

func BenchmarkServerSideApply(b *testing.B) {
	for _, backend := range backends {
		s := backend.start(b)
		b.Run(backend.name, func(b *testing.B) { writes(b, s, true) })
	}
}

func writes(b *testing.B, s *resttest.Server, apply bool) {
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		move(b, s, i, apply)
	}
}

// move gives the first object the address of a number.
func move(b *testing.B, s *resttest.Server, n int, apply bool) {
	b.Helper()
	text, err := config.ToJSON(service(0, fmt.Sprintf("10.1.%d.%d", n/250%250, n%250)), "")
	if err != nil {
		b.Fatal(err)
	}
	method, query, mediaType := "PUT", "?fieldManager=bench", "application/json"
	if apply {
		method, query, mediaType = "PATCH", query+"&force=true", "application/apply-patch+yaml"
	}
	a := s.Do(b, method, shopEntries+"/service-00000"+query, string(text), func(r *http.Request) { r.Header.Set("Content-Type", mediaType) })
	if a.Code != http.StatusOK {
		b.Fatal(a.Code, a.Body)
	}
}

// BenchmarkWatchesOf10000 measures watches of many objects: all of them as the first events, and
// a change of each, from their write as one batch to the watcher. Without a watch there is that
// write alone.
func BenchmarkWatchesOf10000(b *testing.B) {
	for _, form := range []struct{ name, accept string }{{"plain", "application/json"}, {"Table", tableAccept}, {"none", ""}} {
		for _, changes := range []bool{false, true} {
			if !changes && form.accept == "" {
				continue
			}
			name := form.name + ", first events"
			if changes {
				name = form.name + ", changes"
			}
			b.Run(name, func(b *testing.B) {
				s := filled(b)
				b.ReportAllocs()
				for round := 1; b.Loop(); round++ {
					b.StopTimer()
					// A new snapshot, so that no text is shared with the watch before.
					from := change(b, s, 0, round*7)
					query := "?watch=true&resourceVersion=" + from
					if !changes {
						query = "?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=" + from
					}
					b.StartTimer()
					next, end := func() {}, func() {}
					if form.accept != "" {
						next, end = eventsOf(b, s, entries+query, form.accept)
					}
					if changes {
						ops := make([]storage.Op, many)
						for i := range ops {
							ops[i] = storage.Op{Verb: storage.Update, Config: service(i, fmt.Sprintf("10.2.%d.%d", round/250%250, round%250))}
						}
						version, _, err := s.Store.Apply(b.Context(), ops)
						if err != nil {
							b.Fatal(err)
						}
						await(b, s, version)
					}
					for range many {
						next()
					}
					end()
				}
			})
		}
	}
}

// BenchmarkFormsOf10000 measures the forms of a list of many objects beside the plain one. A
// new snapshot comes before each, so that no text is shared with the list before.
func BenchmarkFormsOf10000(b *testing.B) {
	for _, form := range []struct{ name, accept, query string }{
		{"plain", "application/json", ""},
		{"Table", tableAccept, ""},
		{"PartialObjectMetadata", listAccept, ""},
		{"pages of 500", "application/json", "limit=500"},
		{"Table in pages of 500", tableAccept, "limit=500"},
	} {
		b.Run(form.name, func(b *testing.B) {
			s := filled(b)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				b.StopTimer()
				change(b, s, 0, i)
				b.StartTimer()
				for query := "?" + form.query; ; {
					a := s.Do(b, "GET", entries+query, "", accept(form.accept))
					if a.Code != 200 {
						b.Fatal(a.Code)
					}
					next := continueOf.FindStringSubmatch(a.Body[:min(len(a.Body), 500)])
					if next == nil {
						break
					}
					query = "?" + form.query + "&continue=" + next[1]
				}
			}
		})
	}
}

var continueOf = regexp.MustCompile(`"continue":"([^"]+)"`)

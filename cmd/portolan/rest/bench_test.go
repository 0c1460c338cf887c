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

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/resttest"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
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
	r, err := http.NewRequestWithContext(b.Context(), "GET", s.URL+entries+"?watch=true&resourceVersion=3", nil)
	if err != nil {
		b.Fatal(err)
	}
	change := func(i int) {
		if _, err := s.Store.Update(b.Context(), service(i%many, fmt.Sprintf("10.1.%d.%d", i/250%250, i%250))); err != nil {
			b.Fatal(err)
		}
	}
	change(0)
	response, err := (&http.Client{Timeout: time.Hour, Transport: s.HTTP.Transport}).Do(r)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	events := bufio.NewReader(response.Body)
	read := func() {
		if _, err := events.ReadSlice('\n'); err != nil {
			b.Fatal(err)
		}
	}
	read()
	b.ReportAllocs()
	for i := 1; b.Loop(); i++ {
		change(i)
		read()
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
				version, err := s.Store.Update(b.Context(), service(0, fmt.Sprintf("10.1.%d.%d", i/250%250, i%250)))
				if err != nil {
					b.Fatal(err)
				}
				revision, _ := strconv.ParseInt(version, 10, 64)
				if _, err := s.Cache.Await(b.Context(), revision); err != nil {
					b.Fatal(err)
				}
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

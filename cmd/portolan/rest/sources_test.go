package rest_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/resttest"
	"github.com/portolan-mesh/portolan/storage/config"
)

// startWithFiles runs an API over a store and a source behind it.
func startWithFiles(t testing.TB) (*resttest.Server, resttest.Files) {
	t.Helper()
	return resttest.StartBeside(t, false, entry("web", ""))
}

// TestObjectsOfAnotherSource: they are read like others, but cannot be changed here: the
// answer names the source. The store may make an object that shadows one.
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
		{"PATCH", shopEntries + "/web", `{"metadata":{"labels":{"a":"b"}}}`},
	} {
		a := s.Do(t, test.method, test.path, test.body, func(r *http.Request) {
			if test.method == "PATCH" {
				r.Header.Set("Content-Type", "application/merge-patch+json")
			}
		})
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
	edited := `{"apiVersion":"portolan.io/v1","kind":"Batch","operations":[{"verb":"apply","object":` + entry("web", `,"resourceVersion":"v1"`) + `}]}`
	if a := s.Do(t, "DELETE", shopEntries+"/web", ""); a.Code != http.StatusOK ||
		!strings.Contains(strings.Join(a.Header.Values("Warning"), ""), "the object of the source files, web.yaml takes its place") {
		t.Errorf("deleted: %d %s %v", a.Code, a.Body, a.Header)
	}
	if a := s.Do(t, "POST", "/apis/portolan.io/v1/batches", edited); a.Code != http.StatusMethodNotAllowed ||
		!strings.Contains(a.Body, "the object comes from the source files, web.yaml: change it there; without metadata.resourceVersion an apply makes an object of the store in its place") {
		t.Errorf("applied an edited object of a file: %d %s", a.Code, a.Body)
	}
	if read = parse[object](t, s.Do(t, "GET", shopEntries+"/web", "").Body).Metadata; read.ResourceVersion != "v1" {
		t.Errorf("read %+v after that", read)
	}
}

// TestAWatchFollowsAnotherSource: at the revision of the store. A client that resumes
// from the version of an object of that source must list again.
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
	source.Publish(t, "v2", entry("api", ""))
	source.Publish(t, "v3", entry("api", ""))
	w := follow(t, s, shopEntries+"?watch=true&resourceVersion="+list.Metadata.ResourceVersion)
	var state []string // names and versions, without repetitions
	for len(state) < 3 {
		_, e := w.next()
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

// TestTheStoreBehindAFile: an object of the store that a file's object shadows can be
// listed with source=store, deleted and restored, but not written otherwise.
func TestTheStoreBehindAFile(t *testing.T) {
	t.Parallel()
	s, source := resttest.StartBeside(t, true)
	made := create(t, s, "web", "")
	source.Publish(t, "v1", entry("web", ""), entry("api", ""))
	s.Until(t, func(now *cache.Snapshot) bool { return now.Configs().Len() == 2 })
	listed := func(query string) (out []string) {
		t.Helper()
		for _, o := range parse[struct{ Items []object }](t, s.Do(t, "GET", shopEntries+query, "").Body).Items {
			out = append(out, o.Metadata.Name+" "+o.Metadata.ResourceVersion+" "+o.Metadata.Annotations[config.SourceAnnotation])
		}
		return out
	}
	stored := []string{"web " + made.ResourceVersion + " "}
	for query, want := range map[string][]string{
		"":              {"api v1 files, api.yaml", "web v1 files, web.yaml"},
		"?source=store": stored,
		"?source=store&resourceVersionMatch=Exact&resourceVersion=" + made.ResourceVersion: stored,
	} {
		if got := listed(query); !slices.Equal(got, want) {
			t.Errorf("%q lists %q, want %q", query, got, want)
		}
	}
	for _, query := range []string{"?source=files", "?watch=true&source=store"} {
		if a := s.Do(t, "GET", shopEntries+query, ""); a.Code != http.StatusBadRequest || !strings.Contains(a.Body, "leave it out") {
			t.Errorf("%s: %d %s", query, a.Code, a.Body)
		}
	}
	batchOf := func(operation string) string {
		return `{"apiVersion":"portolan.io/v1","kind":"Batch","operations":[` + operation + `]}`
	}
	const batches = "/apis/portolan.io/v1/batches"
	write := func(verb string) string { return batchOf(`{"verb":"` + verb + `","object":` + entry("web", "") + `}`) }
	if a := s.Do(t, "PUT", shopEntries+"/web", entry("web", "")); a.Code != http.StatusMethodNotAllowed {
		t.Errorf("replaced: %d %s", a.Code, a.Body)
	}
	if a := s.Do(t, "POST", batches, write("apply")); a.Code != http.StatusMethodNotAllowed {
		t.Errorf("applied: %d %s", a.Code, a.Body)
	}
	if a := s.Do(t, "POST", batches, write("restore")); a.Code != http.StatusOK {
		t.Errorf("restored: %d %s", a.Code, a.Body)
	}
	remove := batchOf(`{"verb":"delete","apiVersion":"networking.istio.io/v1","kind":"ServiceEntry","namespace":"shop","name":"web","resourceVersion":"` + made.ResourceVersion + `"}`)
	stands := "the object of the source files, web.yaml stands as before"
	if a := s.Do(t, "POST", batches+"?dryRun=All", remove); a.Code != http.StatusOK || !strings.Contains(a.Body, `"note":"`+stands+`"`) {
		t.Errorf("a trial: %d %s", a.Code, a.Body)
	}
	if a := s.Do(t, "DELETE", shopEntries+"/web", ""); a.Code != http.StatusOK || !strings.Contains(strings.Join(a.Header.Values("Warning"), ""), stands) || !strings.Contains(a.Body, string(made.UID)) {
		t.Errorf("deleted: %d %s %v", a.Code, a.Body, a.Header)
	}
	if got := listed("?source=store"); len(got) != 0 {
		t.Errorf("the store still has %q", got)
	}
	if got := listed(""); len(got) != 2 {
		t.Errorf("there are %q", got)
	}
	if a := s.Do(t, "DELETE", shopEntries+"/web", ""); a.Code != http.StatusMethodNotAllowed || !strings.Contains(a.Body, "change it there") {
		t.Errorf("deleted once more: %d %s", a.Code, a.Body)
	}
}

package rest_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/call"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cache/mirror"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/batch"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/record"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/resttest"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/schema/schematest"
)

const (
	notes     = "/api/v1/notes"
	shopNotes = "/api/v1/namespaces/shop/notes"
)

// onNotes runs a test against an API with the kinds of the mesh and Notes, over a store
// in memory and over an etcd.
func onNotes(t *testing.T, run func(*testing.T, *resttest.Server)) {
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		run(t, resttest.StartKinds(t, schematest.Kinds()))
	})
	t.Run("etcd", func(t *testing.T) {
		t.Parallel()
		run(t, overEtcd(t))
	})
}

func overEtcd(t *testing.T) *resttest.Server {
	t.Helper()
	etcdClient, schemas := etcdtest.Start(t), schematest.Kinds()
	store, err := etcd.New(etcdClient, etcd.Options{
		Schemas: schemas, MaxTxnOps: etcdtest.MaxTxnOps, MaxRequestBytes: etcdtest.MaxRequestBytes, RequestTimeout: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	worker := cache.NewWorker()
	replica := mirror.New(etcdClient, mirror.Options{Worker: worker, Schemas: schemas, Store: store})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = worker.Run(ctx) })
	running.Go(func() { _ = replica.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	if _, err := replica.Await(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	o := rest.Options{Store: store, Cache: replica, History: store, Version: "v1.2.3"}
	api, err := rest.New(o)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(api.Handler())
	t.Cleanup(func() { api.EndWatches(); server.Close() })
	return &resttest.Server{URL: server.URL, REST: api, Options: o, HTTP: server.Client()}
}

func note(name, spec string) string {
	return `{"apiVersion":"v1","kind":"Note","metadata":{"name":"` + name + `","namespace":"shop"},"spec":` + spec + `}`
}

// TestTheCoreGroupIsServed: a kind without a group is served below /api as others are
// below /apis.
func TestTheCoreGroupIsServed(t *testing.T) {
	t.Parallel()
	onNotes(t, func(t *testing.T, s *resttest.Server) {
		a := s.Do(t, "POST", shopNotes, note("hello", `{"title":"Tea","lines":[{"text":"boil"}],"pinned":true}`))
		if a.Code != 201 || !strings.Contains(a.Header.Get("Warning"), "spec.pinned is not served yet") {
			t.Fatalf("created: %d %s %v", a.Code, a.Body, a.Header)
		}
		created := parse[object](t, a.Body)
		if created.APIVersion != "v1" || created.Kind != "Note" || created.Metadata.Generation != 1 {
			t.Errorf("created: %s", a.Body)
		}
		a = s.Do(t, "GET", shopNotes+"/hello", "")
		if a.Code != 200 || !strings.HasSuffix(a.Body, `"spec":{"title":"Tea","lines":[{"text":"boil"}],"pinned":true}}`+"\n") {
			t.Errorf("read: %d %s", a.Code, a.Body)
		}
		changed := strings.Replace(a.Body, "Tea", "Coffee", 1)
		if a = s.Do(t, "PUT", shopNotes+"/hello", changed); a.Code != 200 || parse[object](t, a.Body).Metadata.Generation != 2 {
			t.Errorf("replaced: %d %s", a.Code, a.Body)
		}
		if a = s.Do(t, "PUT", shopNotes+"/hello", changed); a.Code != 409 {
			t.Errorf("replaced under an old version: %d %s", a.Code, a.Body)
		}
		for _, path := range []string{notes, shopNotes, notes + "?fieldSelector=metadata.name%3Dhello"} {
			a = s.Do(t, "GET", path, "")
			list := parse[metav1.PartialObjectMetadataList](t, a.Body)
			if a.Code != 200 || list.Kind != "NoteList" || list.APIVersion != "v1" || len(list.Items) != 1 {
				t.Errorf("%s: %d %s", path, a.Code, a.Body)
			}
		}
		if a = s.Do(t, "DELETE", shopNotes+"/hello", ""); a.Code != 200 {
			t.Errorf("deleted: %d %s", a.Code, a.Body)
		}
		if a = s.Do(t, "GET", shopNotes+"/hello", ""); a.Code != 404 || !strings.Contains(a.Body, `notes \"hello\" not found`) {
			t.Errorf("gone: %d %s", a.Code, a.Body)
		}
	})
}

func boxOf(name, fields string) string {
	return `{"apiVersion":"v1","kind":"Box","metadata":{"name":"` + name + `","namespace":"shop"}` + fields + `}`
}

// TestASpecAtTheTopLevelIsServed: fields beside metadata are written, read, listed,
// watched, recorded and refused like any spec, by their own paths.
func TestASpecAtTheTopLevelIsServed(t *testing.T) {
	t.Parallel()
	const boxes = "/api/v1/namespaces/shop/boxes"
	asYAML := func(r *http.Request) { r.Header.Set("Content-Type", "application/yaml") }
	onNotes(t, func(t *testing.T, s *resttest.Server) {
		a := s.Do(t, "POST", boxes, boxOf("tools", `,"type":"oak","data":{"key":"AAEC"},"words":{"a":"<1>"},"immutable":false`))
		const fields = `,"type":"oak","data":{"key":"AAEC"},"words":{"a":"<1>"},"immutable":false}`
		if a.Code != 201 || !strings.HasSuffix(a.Body, fields+"\n") || strings.Contains(a.Body, "spec") || !strings.Contains(a.Header.Get("Warning"), `"immutable is not served yet`) {
			t.Fatalf("created: %d %s %v", a.Code, a.Body, a.Header)
		}
		created := parse[object](t, a.Body)
		a = s.Do(t, "GET", boxes+"/tools", "")
		if a.Code != 200 || !strings.HasSuffix(a.Body, fields+"\n") {
			t.Errorf("read: %d %s", a.Code, a.Body)
		}
		changed := strings.Replace(a.Body, "<1>", "2", 1)
		if a = s.Do(t, "GET", boxes, ""); a.Code != 200 || !strings.Contains(a.Body, fields) {
			t.Errorf("listed: %d %s", a.Code, a.Body)
		}
		w := follow(t, s, boxes+"?watch=true&resourceVersion="+created.Metadata.ResourceVersion)
		if a = s.Do(t, "PUT", boxes+"/tools", changed); a.Code != 200 || parse[object](t, a.Body).Metadata.Generation != 2 || !strings.Contains(a.Body, `"words":{"a":"2"}`) {
			t.Errorf("replaced: %d %s", a.Code, a.Body)
		}
		w.expect("ADDED tools@"+created.Metadata.ResourceVersion, "MODIFIED tools@"+parse[object](t, a.Body).Metadata.ResourceVersion)
		yaml := "apiVersion: v1\nkind: Box\nmetadata: {name: tools, namespace: shop}\ntype: oak\nwords: {a: \"3\"}\n"
		if a = s.Do(t, "PUT", boxes+"/tools", yaml, asYAML); a.Code != 200 || !strings.HasSuffix(a.Body, `,"type":"oak","words":{"a":"3"}}`+"\n") {
			t.Errorf("replaced by YAML: %d %s", a.Code, a.Body)
		}
		a = s.Do(t, "GET", record.Path+"?kind=Box&namespace=shop&name=tools", "")
		if a.Code != 200 || !strings.Contains(a.Body, `"words":{"a":"<1>"},"immutable":false},"after":{`) {
			t.Errorf("recorded: %d %s", a.Code, a.Body)
		}
		a = s.Do(t, "POST", boxes, boxOf("b", `,"tpye":"x","spec":{},"data":{"a":"?"},"parts":[{"txt":1}]`))
		for _, fault := range []string{`tpye: unknown field: did you mean type?`, `spec: unknown field`, `data[a]: must be a string in base64`, `parts[0].txt: unknown field: did you mean text?`} {
			if a.Code != 400 || !strings.Contains(a.Body, fault) || strings.Contains(a.Body, "spec."+fault) {
				t.Errorf("%d %s, want %q", a.Code, a.Body, fault)
			}
		}
		a = s.Do(t, "POST", boxes, boxOf("b", `,"data":{"a":"AA=="}`))
		if status := parse[metav1.Status](t, a.Body); a.Code != 422 || status.Details.Causes[0].Field != "type" {
			t.Errorf("invalid: %d %s", a.Code, a.Body)
		}
		a = s.Do(t, "POST", batch.Path, `{"apiVersion":"portolan.io/v1","kind":"Batch","operations":[{"verb":"apply","object":`+boxOf("b", `,"data":{"a":"AA=="}`)+`}]}`)
		if status := parse[metav1.Status](t, a.Body); a.Code != 422 || status.Details.Causes[0].Field != "operations[0].object.type" {
			t.Errorf("invalid in a batch: %d %s", a.Code, a.Body)
		}
	})
}

// TestAllFaultsOfAGoStruct: one answer has all faults, each with its path.
func TestAllFaultsOfAGoStruct(t *testing.T) {
	t.Parallel()
	s := resttest.StartKinds(t, schematest.Kinds())
	a := s.Do(t, "POST", shopNotes, note("hello", `{"Title":"x","lines":[{"text":5,"txet":"a"},null],"tags":{"a":1},"priority":1.5,"due":"soon","seal":"?","weight":"much","pinned":1}`))
	if a.Code != 400 {
		t.Fatalf("%d %s", a.Code, a.Body)
	}
	var got []string
	for _, cause := range parse[metav1.Status](t, a.Body).Details.Causes {
		got = append(got, cause.Field+": "+cause.Message)
	}
	want := []string{
		`spec.Title: unknown field`,
		`spec.due: is "soon": parsing time "\"soon\"" as "\"2006-01-02T15:04:05Z07:00\"": cannot parse "soon\"" as "2006"`,
		`spec.lines[0].text: must be a string, is 5: put it in quotes`,
		`spec.lines[0].txet: unknown field`,
		`spec.lines[1]: is null: leave it out`,
		`spec.pinned: must be true or false, is 1`,
		`spec.priority: must be a whole number (int32), is 1.5`,
		`spec.seal: must be a string in base64, is "?"`,
		`spec.tags[a]: must be a string, is 1: put it in quotes`,
		`spec.weight: must be a number, is "much"`,
	}
	for i, fault := range got {
		if i >= len(want) || !strings.HasPrefix(fault, strings.Split(want[i], ": parsing")[0]) {
			t.Errorf("fault %d is %s", i, fault)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d faults, want %d: %q", len(got), len(want), got)
	}
	a = s.Do(t, "POST", shopNotes, note("Hello", `{"priority":-1}`))
	for _, fault := range []string{"metadata.name: ", "spec.title: is missing", "spec.priority: must not be negative, is -1"} {
		if a.Code != 422 || !strings.Contains(a.Body, fault) {
			t.Errorf("%d %s, want %q", a.Code, a.Body, fault)
		}
	}
}

// TestNotesAreWatchedAndRecorded: by the client of the command line.
func TestNotesAreWatchedAndRecorded(t *testing.T) {
	t.Parallel()
	onNotes(t, func(t *testing.T, s *resttest.Server) {
		c, err := client.New(s.URL, call.Options{HTTP: s.HTTP})
		if err != nil {
			t.Fatal(err)
		}
		resource := client.Resource(schematest.Kinds().Named("nt"))
		put := func(c *config.Config) batch.Operation {
			operation, err := batch.Write(batch.Apply, c)
			if err != nil {
				t.Fatal(err)
			}
			return operation
		}
		first, err := c.Apply(t.Context(), batch.New(put(schematest.NewNote("shop", "a", "Tea", "x")), put(schematest.NewNote("shop", "b", "Cake"))))
		if err != nil {
			t.Fatal(err)
		}
		w := follow(t, s, notes+"?watch=true&resourceVersion="+first.Revision)
		w.expect("ADDED a@"+first.Revision, "ADDED b@"+first.Revision)
		merged := schematest.NewNote("shop", "a", "Tea", "x", "y")
		merged.Labels = nil
		second, err := c.Apply(t.Context(), batch.New(put(merged), put(schematest.NewNote("shop", "b", "Cake"))))
		if err != nil || second.Results[0].Outcome != "configured" || second.Results[1].Outcome != "unchanged" {
			t.Fatalf("%+v, %v", second, err)
		}
		w.expect("MODIFIED a@" + second.Revision)
		got, err := c.Get(t.Context(), resource, "shop", "a")
		lines, _, _ := unstructured.NestedSlice(got.Object, "spec", "lines")
		if err != nil || got.GetAPIVersion() != "v1" || len(lines) != 2 {
			t.Errorf("%v, %v", got, err)
		}
		if _, err := c.Delete(t.Context(), resource, "shop", "a", second.Revision); err != nil {
			t.Error(err)
		}
		if text, _ := w.next(); !strings.HasPrefix(text, "DELETED a@") {
			t.Error(text)
		}
		records, err := c.Records(t.Context(), record.Query{Kind: "Note", Namespace: "shop", Name: "a"})
		if err != nil || len(records.Items) != 3 {
			t.Fatalf("%+v, %v", records, err)
		}
		if before := string(records.Items[1].Changes[0].Before); !strings.Contains(before, `"apiVersion":"v1"`) || !strings.Contains(before, `"lines":[{"text":"x"}]`) {
			t.Errorf("before the change it was %s", before)
		}
		past, err := c.Fresh(client.Freshness{Exact: parse[int64](t, first.Revision)}).Get(t.Context(), resource, "shop", "a")
		if err != nil || past.GetLabels()["app"] != "a" {
			t.Errorf("at %s: %v, %v", first.Revision, past, err)
		}
	})
}

// TestPathsOfTheCoreGroup: without kinds in it there is no core group, and unknown paths
// are answered as in any group.
func TestPathsOfTheCoreGroup(t *testing.T) {
	t.Parallel()
	without, with := resttest.StartKinds(t, schema.NewSet(schema.Pilot().Kind(schema.ServiceEntry))), resttest.StartKinds(t, schematest.Kinds())
	for path, want := range map[string][2]string{
		"/api":                                 {`"versions":[]`, `"versions":["v1"]`},
		"/api/v1":                              {"no such path", `"groupVersion":"v1"`},
		"/api/v2":                              {"no such path", "no API version v2: /api lists what there is"},
		"/api/v1/pods":                         {"no such path", `no resource \"pods\" in the core group: /api/v1 lists what there is`},
		"/api/v2/notes":                        {"no such path", "notes is not served as v2: use v1"},
		"/api/v1/namespaces/shop":              {"no such path", `no resource \"namespaces\" in the core group`},
		"/api/v1/namespaces/shop/notes/a":      {"no such path", `notes \"a\" not found`},
		"/api/v1/namespaces/shop/notes/a/logs": {"no such path", "notes have no logs that can be read or set by itself"},
		"/apis//v1/notes":                      {"", ""},
	} {
		for i, s := range []*resttest.Server{without, with} {
			if a := s.Do(t, "GET", path, ""); !strings.Contains(a.Body, want[i]) {
				t.Errorf("%s: %d %s, want %q", path, a.Code, a.Body, want[i])
			}
		}
	}
	a := with.Do(t, "POST", shopNotes, entry("a", ""))
	if a.Code != 400 || !strings.Contains(a.Body, "is ServiceEntry of networking.istio.io, and the path takes Note of the core group") {
		t.Errorf("%d %s", a.Code, a.Body)
	}
}

package rest_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"
	clientrest "k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/resttest"
)

const (
	tableAccept   = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"
	partialAccept = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
	listAccept    = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
)

func accept(header string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("Accept", header) }
}

// metav1Table is a Table with the parts of its rows that tests check.
type metav1Table struct {
	APIVersion        string                         `json:"apiVersion"`
	Kind              string                         `json:"kind"`
	Metadata          metav1.ListMeta                `json:"metadata"`
	ColumnDefinitions []metav1.TableColumnDefinition `json:"columnDefinitions"`
	Rows              []struct {
		Cells  []any           `json:"cells"`
		Object json.RawMessage `json:"object"`
	} `json:"rows"`
}

func (m metav1Table) header() string {
	var names []string
	for _, c := range m.ColumnDefinitions {
		if c.Priority == 0 {
			names = append(names, c.Name)
		}
	}
	return strings.Join(names, " ")
}

func TestTables(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, nil)
	made := create(t, s, "a", `,"labels":{"app":"web"}`)
	create(t, s, "b", "")
	const header = "Name Hosts Location Resolution Age"
	for _, c := range []struct {
		path string
		rows int
	}{{shopEntries, 2}, {entries + "?labelSelector=app%3Dweb", 1}, {shopEntries + "/a", 1}, {"/apis/networking.istio.io/v1/namespaces/bank/serviceentries", 0}} {
		a := s.Do(t, "GET", c.path, "", accept(tableAccept))
		got := parse[metav1Table](t, a.Body)
		if a.Code != 200 || got.Kind != "Table" || got.APIVersion != "meta.k8s.io/v1" || got.header() != header || len(got.Rows) != c.rows || got.Rows == nil {
			t.Errorf("%s: %d %s", c.path, a.Code, a.Body)
		}
		for _, row := range got.Rows {
			if row.Cells[1] != row.Cells[0].(string)+".shop" || row.Cells[2] != "MESH_INTERNAL" || row.Cells[3] != "STATIC" || len(row.Cells) != len(got.ColumnDefinitions) {
				t.Errorf("%s: %v", c.path, row.Cells)
			}
			if of := parse[object](t, string(row.Object)); of.Kind != "PartialObjectMetadata" || of.APIVersion != "meta.k8s.io/v1" || of.Metadata.Name != row.Cells[0] {
				t.Errorf("%s: %s", c.path, row.Object)
			}
		}
	}
	if got := parse[metav1Table](t, s.Do(t, "GET", shopEntries+"/a", "", accept(tableAccept)).Body); got.Metadata.ResourceVersion != made.ResourceVersion {
		t.Errorf("one object at %s, not %s", got.Metadata.ResourceVersion, made.ResourceVersion)
	}
	for include, kind := range map[string]string{"None": "", "Metadata": "PartialObjectMetadata", "Object": "ServiceEntry"} {
		got := parse[metav1Table](t, s.Do(t, "GET", shopEntries+"?includeObject="+include, "", accept(tableAccept)).Body)
		if of := parse[object](t, string(got.Rows[0].Object)); of.Kind != kind {
			t.Errorf("%s: %s", include, got.Rows[0].Object)
		}
	}
	if a := s.Do(t, "GET", shopEntries+"?includeObject=All", "", accept(tableAccept)); a.Code != 400 || !strings.Contains(a.Body, "use None, Metadata or Object") {
		t.Errorf("%d %s", a.Code, a.Body)
	}
	if got := parse[metav1Table](t, s.Do(t, "GET", shopEntries, "", accept("application/json;as=Table;v=v1beta1;g=meta.k8s.io")).Body); got.APIVersion != "meta.k8s.io/v1beta1" {
		t.Errorf("v1beta1: %s", got.APIVersion)
	}
}

// tableEvent is an event of a watch of Tables.
type tableEvent struct {
	Type   string
	Object metav1Table
}

// followAs is follow in another form.
func followAs(t *testing.T, s *resttest.Server, header, path string) *watching {
	t.Helper()
	as := *s
	client := *s.HTTP
	client.Transport = withAccept{s.HTTP.Transport, header}
	as.HTTP = &client
	return follow(t, &as, path)
}

type withAccept struct {
	http.RoundTripper
	accept string
}

// RoundTrip implements http.RoundTripper.
func (w withAccept) RoundTrip(r *http.Request) (*http.Response, error) {
	r.Header.Set("Accept", w.accept)
	return w.RoundTripper.RoundTrip(r)
}

// TestWatchOfTables: each event has a Table of one row, and only the first of a watch has the
// columns, also among watches that share their events.
func TestWatchOfTables(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, nil)
	create(t, s, "a", "")
	const query = "?watch=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
	read := func(w *watching) (e tableEvent) {
		t.Helper()
		line, err := w.lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return parse[tableEvent](t, line)
	}
	all := []*watching{followAs(t, s, tableAccept, shopEntries+query), followAs(t, s, tableAccept, shopEntries+query), followAs(t, s, tableAccept, shopEntries+query+"&labelSelector=app%3Dweb")}
	for _, w := range all[:2] {
		if e := read(w); e.Type != "ADDED" || e.Object.Kind != "Table" || len(e.Object.Rows) != 1 || e.Object.Rows[0].Cells[0] != "a" || len(e.Object.ColumnDefinitions) < 5 {
			t.Errorf("first event: %+v", e)
		}
	}
	for i, w := range all {
		e := read(w)
		if e.Type != "BOOKMARK" || e.Object.Kind != "Table" || len(e.Object.Rows) != 1 || (len(e.Object.ColumnDefinitions) > 0) != (i == 2) {
			t.Fatalf("bookmark: %+v", e)
		}
		if of := parse[object](t, string(e.Object.Rows[0].Object)); of.Metadata.Annotations[metav1.InitialEventsAnnotationKey] != "true" || of.Metadata.ResourceVersion != e.Object.Metadata.ResourceVersion {
			t.Errorf("bookmark: %+v", of)
		}
	}
	create(t, s, "b", `,"labels":{"app":"web"}`)
	for _, w := range all {
		if e := read(w); e.Type != "ADDED" || e.Object.Rows[0].Cells[0] != "b" || e.Object.ColumnDefinitions != nil {
			t.Errorf("later event: %+v", e)
		}
	}
	if a := s.Do(t, "DELETE", shopEntries+"/b", ""); a.Code != 200 {
		t.Fatal(a.Body)
	}
	for _, w := range all {
		if e := read(w); e.Type != "DELETED" || e.Object.Rows[0].Cells[0] != "b" {
			t.Errorf("deletion: %+v", e)
		}
	}
}

// TestMetadataOfClientGo: client-go's client for metadata alone reads, lists and watches.
func TestMetadataOfClientGo(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, nil)
	create(t, s, "a", `,"labels":{"app":"web"}`)
	m, err := metadata.NewForConfig(&clientrest.Config{Host: s.URL, Transport: s.HTTP.Transport})
	if err != nil {
		t.Fatal(err)
	}
	shop := m.Resource(gvr).Namespace("shop")
	one, err := shop.Get(t.Context(), "a", metav1.GetOptions{})
	if err != nil || one.Labels["app"] != "web" || one.Generation != 1 {
		t.Errorf("get: %+v, %v", one, err)
	}
	list, err := shop.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 || list.Items[0].UID != one.UID {
		t.Fatalf("list: %+v, %v", list, err)
	}
	w, err := shop.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	create(t, s, "b", "")
	for name := ""; name != "b"; { // first comes the revision of the list once more
		e := <-w.ResultChan()
		object, ok := e.Object.(*metav1.PartialObjectMetadata)
		if !ok || e.Type != "ADDED" {
			t.Fatalf("watch: %+v", e)
		}
		name = object.Name
	}
	for header, path := range map[string]string{listAccept: shopEntries, partialAccept: shopEntries + "/a"} {
		if a := s.Do(t, "GET", path, "", accept(header)); strings.Contains(a.Body, `"spec"`) || !strings.Contains(a.Body, `"kind":"PartialObjectMetadata"`) {
			t.Errorf("not metadata alone: %s", a.Body)
		}
	}
}

func TestNegotiation(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, nil)
	create(t, s, "a", "")
	for _, c := range []struct {
		path, accept string
		code         int
		media, part  string
	}{
		{shopEntries, "", 200, "application/json", `"items":[`},
		{shopEntries, "*/*", 200, "application/json", `"items":[`},
		{shopEntries, "application/*", 200, "application/json", `"items":[`},
		{shopEntries, "text/html,application/xhtml+xml,*/*;q=0.8", 200, "application/json", `"items":[`},
		{shopEntries, "application/vnd.kubernetes.protobuf,application/json", 200, "application/json", `"items":[`},
		{shopEntries, "application/json;q=0.5,application/yaml", 200, "application/yaml", "items:\n- apiVersion"},
		{shopEntries, "application/json;as=Other;v=v1;g=meta.k8s.io,application/yaml", 200, "application/yaml", "kind: ServiceEntryList"},
		{shopEntries, "application/yaml;as=Table;v=v1;g=meta.k8s.io", 200, "application/yaml", "kind: Table"},
		{shopEntries, "application/json;as=Table;v=v2;g=meta.k8s.io", 406, "application/json", "only the following media types are accepted: application/json, application/yaml"},
		{shopEntries, "application/vnd.kubernetes.protobuf", 406, "application/json", "only the following media types are accepted: application/json, application/yaml"},
		{shopEntries, "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", 406, "application/json", "you requested PartialObjectMetadata, but the requested object is a list"},
		{shopEntries + "/a", listAccept, 406, "application/json", "you requested PartialObjectMetadataList, but the requested object is not a list"},
		{shopEntries + "/a", "application/yaml", 200, "application/yaml", "kind: ServiceEntry\n"},
		{shopEntries + "/a?pretty=true", "", 200, "application/json", "\n  \"kind\": \"ServiceEntry\",\n"},
		{shopEntries + "/a?pretty=yes", "", 400, "application/json", "use true or false"},
		{shopEntries + "?pretty=true", "", 200, "application/json", "\n  \"items\": [\n    {\n      \"apiVersion\""},
		{shopEntries + "?watch=1", "application/yaml", 406, "application/json", "only the following media types are accepted: application/json"},
		{"/apis", "application/yaml", 200, "application/yaml", "kind: APIGroupList"},
		{"/apis", "text/plain", 406, "application/json", "NotAcceptable"},
		{"/version?pretty=1", "", 200, "application/json", "\n  \"gitVersion\": \"v1.2.3\""},
	} {
		a := s.Do(t, "GET", c.path, "", accept(c.accept))
		if a.Code != c.code || a.Header.Get("Content-Type") != c.media || !strings.Contains(a.Body, c.part) {
			t.Errorf("%s as %q: %d %s %s", c.path, c.accept, a.Code, a.Header.Get("Content-Type"), a.Body)
		}
		if status := (metav1.Status{}); c.code == 406 && (json.Unmarshal([]byte(a.Body), &status) != nil || status.Reason != metav1.StatusReasonNotAcceptable) {
			t.Errorf("%s as %q: %s", c.path, c.accept, a.Body)
		}
	}
	if a := s.Do(t, "POST", shopEntries, entry("b", ""), accept("text/plain")); a.Code != 406 || s.Do(t, "GET", shopEntries+"/b", "").Code != 404 {
		t.Errorf("a refused write was done: %d %s", a.Code, a.Body)
	}
}

// TestFormsSayTheSame: a list in YAML and an indented one hold what the compact one does.
func TestFormsSayTheSame(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, nil)
	create(t, s, "a", `,"annotations":{"text":" two\nlines\n\n","odd":"\u2028- x: #y"}`)
	create(t, s, "b", `,"annotations":{"text":"| > ' \" \n  indented\n"}`)
	for _, path := range []string{shopEntries, shopEntries + "/a", shopEntries + "?limit=1", "/apis/networking.istio.io/v1/gateways"} {
		for _, as := range []string{"", ";as=Table;v=v1;g=meta.k8s.io"} {
			separator := "?"
			if strings.Contains(path, "?") {
				separator = "&"
			}
			get := func(query, media string) string {
				return s.Do(t, "GET", path+query, "", accept(media+as)).Body
			}
			var compact, pretty, inYAML string
			for compact == "" || get("", "application/json") != compact { // the ages in a table are others a second later
				compact, pretty, inYAML = get("", "application/json"), get(separator+"pretty=true", "application/json"), get("", "application/yaml")
			}
			back, err := yaml.YAMLToJSON([]byte(inYAML))
			if err != nil {
				t.Fatalf("%s: %v in %s", path, err, inYAML)
			}
			want := canonical(t, compact)
			if got := canonical(t, pretty); got != want || strings.Count(pretty, "\n") < 5 {
				t.Errorf("%s indented: %s, want %s", path, got, want)
			}
			if got := canonical(t, string(back)); got != want {
				t.Errorf("%s in YAML: %s, want %s", path, got, want)
			}
		}
	}
}

// canonical writes JSON in one way.
func canonical(t *testing.T, text string) string {
	t.Helper()
	out, err := json.Marshal(parse[any](t, text))
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

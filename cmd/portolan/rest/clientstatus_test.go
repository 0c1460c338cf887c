package rest_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/resttest"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/status"
)

// conditionsIn returns the conditions of an answer as TYPE=STATUS REASON, without those of servers.
func conditionsIn(t *testing.T, a resttest.Answer) []string {
	t.Helper()
	var out []string
	for _, c := range parse[servedObject](t, a.Body).Status.Conditions {
		if !status.Reserved(c.Type) {
			out = append(out, strings.TrimSpace(c.Type+"="+c.Status+" "+c.Reason))
		}
	}
	return out
}

// set returns a ServiceEntry with conditions, each TYPE=STATUS or TYPE=STATUS REASON.
func set(meta string, conditions ...string) string {
	var list []string
	for _, c := range conditions {
		kind, rest, _ := strings.Cut(c, "=")
		value, reason, _ := strings.Cut(rest, " ")
		list = append(list, fmt.Sprintf(`{"type":%q,"status":%q,"reason":%q}`, kind, value, reason))
	}
	return fmt.Sprintf(`{"apiVersion":"networking.istio.io/v1","kind":"ServiceEntry","metadata":{"name":"a"%s},"status":{"conditions":[%s]}}`, meta, strings.Join(list, ","))
}

func TestConditionsOfClientsAreKeptByType(t *testing.T) {
	t.Parallel()
	s := withReports(t)
	do(t, s.Server, "POST", shopEntries, entry("a", ""), 201)
	made := s.Do(t, "GET", shopEntries+"/a", "")
	version := parse[servedObject](t, made.Body).Metadata.ResourceVersion
	path := shopEntries + "/a/status"
	at := `,"resourceVersion":"` + version + `"`
	apply := func(manager string) string { return path + "?fieldManager=" + manager }
	for i, step := range []struct {
		do, method, path, body string
		code                   int
		want                   []string // afterwards
	}{
		{"a dry run", "PUT", path + "?dryRun=All", set("", "Ready=True"), 200, nil},
		{"one", "PUT", path, set(at, "Ready=True Done"), 200, []string{"Ready=True Done"}},
		{"the version of before", "PUT", path, set(at, "Ready=False"), 409, []string{"Ready=True Done"}},
		{"another uid", "PUT", path, set(`,"uid":"x"`, "Ready=False"), 409, []string{"Ready=True Done"}},
		{"those of servers", "PUT", path, set("", "Programmed=True Mine", "Ready=True Done"), 200, []string{"Ready=True Done"}},
		{"a merge patch", "PATCH merge", path, `{"status":{"conditions":[{"type":"Ready","status":"False"},{"type":"Synced","status":"True"}]}}`, 200, []string{"Ready=False", "Synced=True"}},
		{"an apply of a third", "PATCH apply", apply("ann"), set("", "Checked=True"), 200, []string{"Ready=False", "Synced=True", "Checked=True"}},
		{"an apply against another", "PATCH apply", apply("bob"), set("", "Checked=False", "More=True"), 409, []string{"Ready=False", "Synced=True", "Checked=True"}},
		{"a forced apply", "PATCH apply", apply("bob") + "&force=true", set("", "Checked=False", "More=True"), 200, []string{"Ready=False", "Synced=True", "Checked=False", "More=True"}},
		{"an apply of less", "PATCH apply", apply("bob"), set("", "Checked=False"), 200, []string{"Ready=False", "Synced=True", "Checked=False"}},
		{"a dry apply", "PATCH apply", apply("bob") + "&dryRun=All", set("", "Else=False"), 200, []string{"Ready=False", "Synced=True", "Checked=False"}},
		{"a JSON patch", "PATCH json", path, `[{"op":"test","path":"/metadata/name","value":"a"},{"op":"replace","path":"/status","value":{"conditions":[]}}]`, 200, nil},
		{"nothing of a status", "PUT", path, entry("a", ""), 200, nil},
		{"a wrong status", "PUT", path, set("", "Ready=Perhaps"), 422, nil},
		{"one twice", "PUT", path, set("", "Ready=True", "Ready=False"), 422, nil},
		{"too many", "PUT", path, set("", slices.Repeat([]string{"x=True"}, 50)...), 422, nil},
		{"validation messages", "PUT", path, strings.Replace(set(""), `"conditions":[]`, `"validationMessages":[{"documentationUrl":"x"}]`, 1), 422, nil},
		{"an unknown field", "PUT", path, strings.Replace(set(""), `"conditions"`, `"condition"`, 1), 400, nil},
		{"no such object", "PUT", strings.Replace(path, "/a/", "/b/", 1), strings.Replace(set("", "Ready=True"), `"name":"a"`, `"name":"b"`, 1), 404, nil},
	} {
		method, media, patches := strings.Cut(step.method, " ")
		as := func(*http.Request) {}
		if patches {
			as = func(r *http.Request) {
				r.Header.Set("Content-Type", map[string]string{"merge": "application/merge-patch+json", "apply": "application/apply-patch+yaml", "json": "application/json-patch+json"}[media])
			}
		}
		a := s.Do(t, method, step.path, step.body, as)
		if a.Code != step.code {
			t.Fatalf("%d, %s: %d %s", i, step.do, a.Code, a.Body)
		}
		if step.do == "an unknown field" && !strings.Contains(a.Body, "status.condition: unknown field: did you mean conditions?") {
			t.Errorf("%s", a.Body)
		}
		if step.do == "an apply against another" && !strings.Contains(a.Body, `conflict with \"ann\": .status.conditions[type=\"Checked\"]`) {
			t.Errorf("%s", a.Body)
		}
		if got := strings.Join(a.Header.Values("Warning"), " "); (step.do == "those of servers") != strings.Contains(got, "the condition Programmed is what servers set") {
			t.Errorf("%s: warnings %q", step.do, got)
		}
		if strings.Contains(step.path, "dryRun") && len(conditionsIn(t, a)) == 0 {
			t.Errorf("%s: the answer has no condition: %s", step.do, a.Body)
		}
		if got := conditionsIn(t, s.Do(t, "GET", shopEntries+"/a", "")); !slices.Equal(got, step.want) {
			t.Errorf("%s: %q, want %q", step.do, got, step.want)
		}
	}
	after := parse[servedObject](t, s.Do(t, "GET", shopEntries+"/a", "").Body)
	if history := s.Do(t, "GET", shopEntries+"/a?resourceVersion="+version, ""); history.Code != 200 || after.Metadata.ResourceVersion == version {
		t.Errorf("%d, version %s", history.Code, after.Metadata.ResourceVersion)
	}
}

// A write of the object under the version that a status gave it is no conflict, and its statuses
// stay; an object made anew has none, and the leader takes the old ones away.
func TestConditionsOfClientsOutliveWritesAndNotTheObject(t *testing.T) {
	t.Parallel()
	s := withReports(t)
	do(t, s.Server, "POST", shopEntries, entry("a", ""), 201)
	told := s.Do(t, "PUT", shopEntries+"/a/status", set("", "Ready=True"))
	version := parse[servedObject](t, told.Body).Metadata.ResourceVersion
	changed := do(t, s.Server, "PUT", shopEntries+"/a", strings.Replace(entry("a", `,"resourceVersion":"`+version+`"`), "10.0.0.1", "10.0.0.2", 1), 200)
	if got := conditionsIn(t, s.Do(t, "GET", shopEntries+"/a", "")); !slices.Equal(got, []string{"Ready=True"}) {
		t.Errorf("%q after %+v", got, changed)
	}
	s.Do(t, "DELETE", shopEntries+"/a", "")
	do(t, s.Server, "POST", shopEntries, entry("a", ""), 201)
	if got := conditionsIn(t, s.Do(t, "GET", shopEntries+"/a", "")); len(got) > 0 {
		t.Errorf("%q of an object made anew", got)
	}
	s.Do(t, "DELETE", shopEntries+"/a", "")
	store, err := etcd.New(s.client, etcd.Options{Schemas: schema.Pilot()})
	if err != nil {
		t.Fatal(err)
	}
	gone := ""
	for path := range s.cache.Snapshot().Statuses().All() {
		gone = path
	}
	if err := store.WriteStatuses(t.Context(), []status.Write{{Path: gone}}); err != nil || gone == "" {
		t.Fatal(gone, err)
	}
	if answer, err := s.client.Get(t.Context(), etcd.ClientStatusPrefix+gone); err != nil || len(answer.Kvs) > 0 {
		t.Errorf("%v, %v", answer, err)
	}
}

// A preview shows specs as they are written, so that it has the differences for which a write
// counts.
func TestPreviewIsAsWritten(t *testing.T) {
	t.Parallel()
	s := withReports(t)
	do(t, s.Server, "POST", shopEntries, entry("a", ""), 201)
	text := strings.Replace(entry("a", ""), `"address":"10.0.0.1"`, `"address":"10.0.0.1","weight":0`, 1)
	a := s.Do(t, "POST", batches+"?dryRun=All&preview=proxies", `{"apiVersion":"portolan.io/v1","kind":"Batch","operations":[{"verb":"apply","object":`+text+`}]}`)
	if a.Code != 200 || !strings.Contains(a.Body, `"configured"`) || strings.Count(a.Body, `"weight":0`) != 1 {
		t.Errorf("%d %s", a.Code, a.Body)
	}
}

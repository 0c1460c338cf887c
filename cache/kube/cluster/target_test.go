package cluster

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/portolan-mesh/portolan/cache/kube/cluster/clustertest"
)

// TestListOfDocuments: a list without Go types has every object of the answer, and an answer that is no
// whole list is an error: as an empty list it would remove all objects.
func TestListOfDocuments(t *testing.T) {
	t.Parallel()
	const web = `{"apiVersion":"networking.istio.io/v1","kind":"ServiceEntry","metadata":{"name":"web","namespace":"shop","generation":3},"spec":{"ports":[{"number":80}]}}`
	const bare = `{"metadata":{"name":"bare","namespace":"shop"}}`
	list := func(items string) string {
		return `{"apiVersion":"networking.istio.io/v1","kind":"ServiceEntryList","metadata":{"resourceVersion":"7","continue":"next"},"items":` + items + `}`
	}
	for name, test := range map[string]struct {
		code         int
		answer       string
		want, reason string
	}{
		"none":         {200, list(`[]`), "", ""},
		"null":         {200, list(`null`), "", ""},
		"objects":      {200, list(`[` + web + `,` + bare + `]`), "web/3/ServiceEntry/networking.istio.io/v1 bare/0/ServiceEntry/networking.istio.io/v1", ""},
		"cut off":      {200, list(`[` + web)[:120], "", "cannot be read"},
		"one object":   {200, web, "", `it is of kind "ServiceEntry"`},
		"nothing":      {200, `{}`, "", `it is of kind ""`},
		"text":         {200, `<html>`, "", "cannot be read"},
		"a bad object": {200, list(`["x"]`), "", "items[0] of the list of serviceentries"},
		"a refusal": {403, `{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"Forbidden","code":403,"message":"the account may not"}`,
			"", "the account may not"},
		"a loaded server": {503, `busy`, "", "unable to handle the request"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := clustertest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/apis/networking.istio.io/v1/serviceentries" || r.URL.Query().Get("labelSelector") != "a=b" || !strings.Contains(r.Header.Get("Accept"), "json") {
					t.Errorf("it asks for %s", r.URL)
				}
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(test.code)
				_, _ = io.WriteString(w, test.answer)
			}))
			c := connected(t, server)
			var got []string
			of := &target{resource: schema.GroupVersionResource{Group: "networking.istio.io", Version: "v1", Resource: "serviceentries"}, kind: "ServiceEntry", labels: "a=b"}
			from, err := of.list(t.Context(), c.link.current(), metav1.ListOptions{}, func(o Object) {
				got = append(got, fmt.Sprintf("%s/%d/%s/%s", o.GetName(), o.GetGeneration(), o.GetObjectKind().GroupVersionKind().Kind, o.GetObjectKind().GroupVersionKind().GroupVersion()))
			})
			if test.reason != "" {
				if err == nil || !strings.Contains(err.Error(), test.reason) || apierrors.IsForbidden(err) != (test.code == 403) {
					t.Errorf("the error is %v, want one with %q", err, test.reason)
				}
				return
			}
			if err != nil || strings.Join(got, " ") != test.want || from.GetResourceVersion() != "7" || from.GetContinue() != "next" {
				t.Errorf("%v, %v: %v", got, from, err)
			}
		})
	}
}

// TestAListIsNotDecodedAtOnce: while a list of many documents is passed on, it takes little more memory than
// its text. Not parallel: it measures the heap of the process.
func TestAListIsNotDecodedAtOnce(t *testing.T) {
	var entries []string
	for n := range 500 {
		entries = append(entries, fmt.Sprintf(`{"address":"10.7.0.1","locality":"eu/a","labels":{"app":"large","version":"%050d"}}`, n))
	}
	const objects = 200
	one := `{"apiVersion":"networking.istio.io/v1","kind":"ServiceEntry","metadata":{"name":"x"},"spec":{"endpoints":[` + strings.Join(entries, ",") + `]}}`
	server := clustertest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"apiVersion":"networking.istio.io/v1","kind":"ServiceEntryList","metadata":{"resourceVersion":"7"},"items":[`+one)
		for range objects - 1 {
			_, _ = io.WriteString(w, ","+one)
		}
		_, _ = io.WriteString(w, `]}`)
	}))
	heap := func() float64 {
		var stats runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&stats)
		return float64(stats.HeapAlloc)
	}
	c := connected(t, server)
	before, during, seen := heap(), 0.0, 0
	of := &target{resource: schema.GroupVersionResource{Group: "networking.istio.io", Version: "v1", Resource: "serviceentries"}, kind: "ServiceEntry"}
	_, err := of.list(t.Context(), c.link.current(), metav1.ListOptions{}, func(Object) {
		if seen++; seen == 10 { // the most: later on less text is left
			during = heap()
		}
	})
	if err != nil || seen != objects {
		t.Fatal(seen, err)
	}
	each := (during - before) / float64(objects*len(one))
	t.Logf("a byte of the list takes %.1f bytes", each)
	if each > 2.5 {
		t.Errorf("a byte of the list takes %.1f bytes while the list is passed on", each)
	}
}

// connected returns a connection to an API server.
func connected(t *testing.T, server *httptest.Server) *Cluster {
	t.Helper()
	c, err := New(Options{Name: "east", Content: []byte(`{"apiVersion":"v1","kind":"Config","current-context":"x","clusters":[{"name":"x","cluster":{"server":"` + server.URL +
		`"}}],"contexts":[{"name":"x","context":{"cluster":"x","user":"x"}}],"users":[{"name":"x","user":{}}]}`)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

package resttest_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	networking "istio.io/api/networking/v1alpha3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/resttest"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/memory"
	"github.com/portolan-mesh/portolan/storage/schema"
)

const (
	entries     = "/apis/networking.istio.io/v1/serviceentries"
	shopEntries = "/apis/networking.istio.io/v1/namespaces/shop/serviceentries"
	health      = "/apis/networking.istio.io/v1/namespaces/shop/workloadentries/w/status"
	batches     = "/apis/portolan.io/v1/batches"

	entry = `{"apiVersion":"networking.istio.io/v1","kind":"ServiceEntry","metadata":{"name":"a","namespace":"shop"},` +
		`"spec":{"hosts":["a.shop"],"resolution":"STATIC","ports":[{"number":80,"name":"http"}],"endpoints":[{"address":"10.0.0.1"}]}}`
	workload = `{"apiVersion":"networking.istio.io/v1","kind":"WorkloadEntry","metadata":{"name":"w","namespace":"shop"},"spec":{"address":"10.0.0.1"},` +
		`"status":{"conditions":[{"type":"Healthy","status":"True","lastProbeTime":"2026-01-31T12:00:00Z"}]}}`
)

// answer returns the API's answer to a request from this machine, without a connection.
func answer(t *testing.T, s *resttest.Server, method, path string, body string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, "http://localhost/", strings.NewReader(body))
	r.RemoteAddr = "127.0.0.1:1"
	r.URL.Path, r.URL.RawQuery, _ = strings.Cut(path, "?")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	s.REST.Handler().ServeHTTP(w, r)
	if w.Code >= http.StatusInternalServerError || !json.Valid(w.Body.Bytes()) {
		t.Errorf("%s %q with %q: %d %s", method, path, body, w.Code, w.Body)
	}
	return w
}

// keeper accepts every report of health.
type keeper struct{ *memory.Store }

func (k keeper) SetHealth(_ context.Context, update storage.HealthUpdate) (storage.HealthResult, error) {
	return storage.HealthResult{Revision: "1", Report: update.Report}, nil
}

// FuzzBody sends bodies to every path that takes one. What is accepted can be read back.
func FuzzBody(f *testing.F) {
	f.Add(entry, false)
	f.Add(workload, false)
	f.Add(`{"apiVersion":"portolan.io/v1","kind":"Batch","operations":[{"verb":"apply","object":`+entry+`},{"verb":"delete","kind":"ServiceEntry","name":"c"}]}`, false)
	f.Add(`{"preconditions":{"uid":"u","resourceVersion":"3"},"propagationPolicy":"Background"}`, false)
	f.Add("apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: a, uid: &u x, labels: {a: *u}}\nspec: {hosts: [a.b]}\n", true)
	s := resttest.Start(f, 10, func(o *rest.Options) { o.Store = keeper{o.Store.(*memory.Store)} })
	if _, err := s.Store.Create(f.Context(), &config.Config{
		Meta: config.Meta{GroupVersionKind: schema.WorkloadEntry, Namespace: "shop", Name: "w"}, Spec: &networking.WorkloadEntry{Address: "10.0.0.1"},
	}); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body string, isYAML bool) {
		media := "application/json"
		if isYAML {
			media = "application/yaml"
		}
		if w := answer(t, s, "POST", shopEntries, body, "Content-Type", media); w.Code == 201 {
			var made metav1.PartialObjectMetadata
			if err := json.Unmarshal(w.Body.Bytes(), &made); err != nil {
				t.Fatal(err)
			}
			if again := answer(t, s, "GET", shopEntries+"/"+made.Name, ""); again.Code != 200 {
				t.Errorf("%q was created and is answered %d %s", body, again.Code, again.Body)
			}
		}
		for method, path := range map[string]string{"PUT": shopEntries + "/a", "DELETE": shopEntries + "/a"} {
			answer(t, s, method, path, body, "Content-Type", media)
		}
		answer(t, s, "POST", batches, body, "Content-Type", media)
		answer(t, s, "PUT", health, body, "Content-Type", media)
	})
}

// FuzzQuery sends parameters, selectors and tokens to every path that takes some.
func FuzzQuery(f *testing.F) {
	f.Add("labelSelector=a%3Db,c+in+(d,e),!f&fieldSelector=metadata.name%3Dx&limit=1&continue=abc")
	f.Add("resourceVersion=1&resourceVersionMatch=Exact&consistent=true&dryRun=All&message=m&timeoutSeconds=0")
	f.Add("group=networking.istio.io&kind=ServiceEntry&namespace=a&name=b&after=1&until=3&limit=9&objects=false")
	s := resttest.Start(f, 10, nil)
	f.Fuzz(func(t *testing.T, query string) {
		if strings.Contains(strings.ToLower(query), "watch") || strings.Contains(query, "%") && strings.Contains(query, "resourceVersion") {
			t.Skip("a watch lasts, and so does waiting for a version of the future")
		}
		for _, path := range []string{entries, shopEntries, shopEntries + "/a", "/apis/portolan.io/v1/records", "/apis", "/version"} {
			if !strings.Contains(query, "resourceVersion") {
				answer(t, s, "GET", path+"?"+query, "")
			}
		}
		// The first value counts: a version of the future would rightly be answered with 504.
		answer(t, s, "POST", shopEntries+"?dryRun=All&resourceVersion=1&"+query, entry, "Content-Type", "application/json")
		answer(t, s, "GET", shopEntries+"?resourceVersionMatch=Exact&resourceVersion=1&"+query, "")
	})
}

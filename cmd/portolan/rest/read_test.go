package rest_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/resttest"
	"github.com/portolan-mesh/portolan/discovery/access"
)

func TestDiscovery(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, nil)
	get := func(path string) string {
		a := s.Do(t, "GET", path, "")
		if a.Code != 200 || a.Header.Get("Content-Type") != "application/json" {
			t.Fatalf("%s: %d %s", path, a.Code, a.Body)
		}
		return a.Body
	}
	if core := parse[metav1.APIVersions](t, get("/api")); core.Kind != "APIVersions" || !slices.Equal(core.Versions, []string{"v1"}) {
		t.Errorf("/api: %+v", core)
	}
	var groups []string
	for _, g := range parse[metav1.APIGroupList](t, get("/apis")).Groups {
		groups = append(groups, g.PreferredVersion.GroupVersion)
	}
	if want := []string{"networking.istio.io/v1", "security.istio.io/v1", "telemetry.istio.io/v1", "extensions.istio.io/v1alpha1", "networking.k8s.io/v1", "portolan.io/v1", "events.k8s.io/v1", "coordination.k8s.io/v1", "apiextensions.k8s.io/v1"}; !slices.Equal(groups, want) {
		t.Errorf("/apis: %q", groups)
	}
	networking := parse[metav1.APIGroup](t, get("/apis/networking.istio.io"))
	if networking.Kind != "APIGroup" || len(networking.Versions) != 3 || networking.Versions[2].Version != "v1alpha3" {
		t.Errorf("group: %+v", networking)
	}
	resources := map[string]metav1.APIResource{}
	for _, r := range parse[metav1.APIResourceList](t, get("/apis/networking.istio.io/v1alpha3")).APIResources {
		resources[r.Name] = r
	}
	vs := resources["virtualservices"]
	if vs.SingularName != "virtualservice" || vs.Kind != "VirtualService" || !vs.Namespaced || vs.ShortNames[0] != "vs" || len(vs.Verbs) != 8 {
		t.Errorf("virtualservices: %+v", vs)
	}
	if _, ok := resources["envoyfilters"]; !ok || len(resources) != 8 {
		t.Errorf("resources: %v", resources)
	}
	const definitions = "/apis/apiextensions.k8s.io/v1"
	if r := parse[metav1.APIResourceList](t, get(definitions)).APIResources; len(r) != 1 || r[0].Kind != "CustomResourceDefinition" || r[0].Namespaced || !slices.Equal(r[0].Verbs, []string{"list"}) {
		t.Errorf("definitions: %+v", r)
	}
	if got := get(definitions + "/customresourcedefinitions"); !strings.Contains(got, `"kind":"CustomResourceDefinitionList"`) || !strings.Contains(got, `"items":[]`) {
		t.Errorf("the definitions: %s", got)
	}
	if a := s.Do(t, "POST", definitions+"/customresourcedefinitions", "{}"); a.Code != 405 {
		t.Errorf("a new definition: %d", a.Code)
	}
	ours := map[string]bool{}
	for _, r := range parse[metav1.APIResourceList](t, get("/apis/portolan.io/v1")).APIResources {
		ours[r.Name] = true
	}
	if !ours["batches"] || !ours["records"] || !ours["jointokens"] {
		t.Errorf("our own: %v", ours)
	}
	for _, path := range []string{"/version", "/version/"} {
		if v := parse[version.Info](t, get(path)); v.GitVersion != "v1.2.3" || v.Major != "1" || v.Minor != "2" {
			t.Errorf("%s: %+v", path, v)
		}
	}
	if a := s.Do(t, "POST", "/apis", "{}"); a.Code != 405 {
		t.Errorf("POST /apis: %d", a.Code)
	}
}

type list struct {
	APIVersion string          `json:"apiVersion"`
	Kind       string          `json:"kind"`
	Metadata   metav1.ListMeta `json:"metadata"`
	Items      []object        `json:"items"`
}

func TestList(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, nil)
	create(t, s, "a", `,"labels":{"app":"web"}`)
	create(t, s, "b", `,"labels":{"app":"db"}`)
	last := create(t, s, "c", "")
	other := strings.Replace(entry("a", ""), `"shop"`, `"bank"`, 1)
	if a := s.Do(t, "POST", "/apis/networking.istio.io/v1/namespaces/bank/serviceentries", other); a.Code != 201 {
		t.Fatal(a.Body)
	}
	tests := []struct{ name, path, want string }{
		{"all namespaces", entries, "bank/a shop/a shop/b shop/c"},
		{"one namespace", shopEntries, "shop/a shop/b shop/c"},
		{"no limit", shopEntries + "?limit=0", "shop/a shop/b shop/c"},
		{"labels", entries + "?labelSelector=app+in+(web,db)", "shop/a shop/b"},
		{"no label", shopEntries + "?labelSelector=!app", "shop/c"},
		{"name", entries + "?fieldSelector=metadata.name%3Da,metadata.namespace!%3Dbank", "shop/a"},
		{"not older than", entries + "?resourceVersion=1&resourceVersionMatch=NotOlderThan", "bank/a shop/a shop/b shop/c"},
		{"at a version", entries + "?resourceVersion=3&resourceVersionMatch=Exact", "shop/a shop/b"},
		{"none", "/apis/networking.istio.io/v1/gateways", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got := parse[list](t, s.Do(t, "GET", test.path, "").Body)
			var names []string
			for _, item := range got.Items {
				names = append(names, item.Metadata.Namespace+"/"+item.Metadata.Name)
			}
			if strings.Join(names, " ") != test.want || got.Items == nil || got.APIVersion != "networking.istio.io/v1" || !strings.HasSuffix(got.Kind, "List") {
				t.Errorf("%+v", got)
			}
		})
	}
	got := parse[list](t, s.Do(t, "GET", entries, "").Body)
	if got.Metadata.ResourceVersion != s.Store.Version() || got.Metadata.ResourceVersion == last.ResourceVersion {
		t.Errorf("the list is at %s, the store at %s", got.Metadata.ResourceVersion, s.Store.Version())
	}
	for query, code := range map[string]int{
		"?resourceVersionMatch=Exact":                    422,
		"?resourceVersionMatch=Other&resourceVersion=1":  422,
		"?resourceVersionMatch=Exact&resourceVersion=99": 400,
	} {
		if a := s.Do(t, "GET", entries+query, ""); a.Code != code {
			t.Errorf("%s: %d %s", query, a.Code, a.Body)
		}
	}
}

// unread is a cache that has not read its store.
type unread struct{ rest.Source }

func (unread) Snapshot() *cache.Snapshot { return nil }

func TestCacheThatHasNotSynced(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, func(o *rest.Options) { o.Cache = unread{o.Cache} })
	for _, path := range []string{entries, shopEntries + "/x", entries + "?watch=1"} {
		if a := s.Do(t, "GET", path, ""); a.Code != 503 {
			t.Errorf("%s: %d %s", path, a.Code, a.Body)
		}
	}
}

func TestHealth(t *testing.T) {
	t.Parallel()
	var broken, worse error
	s := resttest.Start(t, 0, func(o *rest.Options) {
		o.Checks = []rest.Check{
			{Name: "store", Degraded: func() error { return worse }},
			{Name: "cache", Ready: func() error { return broken }},
		}
	})
	evil := func(r *http.Request) { r.Host = "10.1.2.3" } // as through a load balancer
	if a := s.Do(t, "GET", "/healthz", "", evil); a.Code != 200 || a.Body != "ok\n" {
		t.Errorf("%d %s", a.Code, a.Body)
	}
	if a := s.Do(t, "GET", "/readyz", "", evil); a.Code != 200 || a.Body != "ok\n" {
		t.Errorf("%d %s", a.Code, a.Body)
	}
	if a := s.Do(t, "GET", "/readyz?verbose", ""); a.Body != "[+] store ok\n[+] cache ok\nready\n" {
		t.Errorf("%s", a.Body)
	}
	worse = errors.New("no answer for 7s")
	if a := s.Do(t, "GET", "/readyz", ""); a.Code != 200 || a.Body != "[!] store: no answer for 7s\n[+] cache ok\nready, and degraded: 1 of 2 checks\n" {
		t.Errorf("%d %s", a.Code, a.Body)
	}
	for path, want := range map[string]string{
		"/readyz/cache":                     "200 ok\n",
		"/readyz/store":                     "200 [!] store: no answer for 7s\nready, and degraded: 1 of 1 checks\n",
		"/readyz/other":                     "404 there is no check \"other\": /readyz?verbose lists them\n",
		"/readyz?exclude=store":             "200 ok\n",
		"/readyz?exclude=store&verbose":     "200 [+] cache ok\nready\n",
		"/readyz?exclude=a&verbose":         "200 [!] store: no answer for 7s\n[+] cache ok\nwarning: there is no check \"a\" to exclude\nready, and degraded: 1 of 2 checks\n",
		"/livez":                            "200 ok\n",
		"/livez?verbose":                    "200 [+] ping ok\nready\n",
		"/livez/ping":                       "200 ok\n",
		"/healthz/ping?verbose":             "200 [+] ping ok\nready\n",
		"/livez?exclude=store&exclude=ping": "200 ok\n",
	} {
		if a := s.Do(t, "GET", path, ""); fmt.Sprint(a.Code, " ", a.Body) != want {
			t.Errorf("%s: %d %s", path, a.Code, a.Body)
		}
	}
	stranger := httptest.NewRecorder() // on another machine, without credentials
	s.REST.Handler().ServeHTTP(stranger, httptest.NewRequestWithContext(t.Context(), "GET", "http://localhost/readyz/store?verbose", nil))
	if got := stranger.Body.String(); stranger.Code != 200 || strings.Contains(got, "no answer") {
		t.Errorf("a stranger learns %s", got)
	}
	worse = nil
	broken = errors.New("behind by 7")
	if a := s.Do(t, "GET", "/readyz/cache", ""); a.Code != 503 {
		t.Errorf("%d %s", a.Code, a.Body)
	}
	if a := s.Do(t, "GET", "/readyz", ""); a.Code != 503 || a.Body != "[-] cache: behind by 7\n[+] store ok\nnot ready: 1 of 2 checks failed\n" {
		t.Errorf("%d %s", a.Code, a.Body)
	}
}

func TestMetricsAndFurtherHandlers(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, func(o *rest.Options) { o.Hosts = []string{"Portolan.example:15080"} })
	s.REST.Handle("GET /debug/proxies", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, "none") }))
	named := func(r *http.Request) { r.Host = "portolan.example" }
	if a := s.Do(t, "GET", "/debug/proxies", "", named); a.Code != 200 || a.Body != "none" {
		t.Errorf("%d %s", a.Code, a.Body)
	}
	if a := s.Do(t, "GET", "/debug/proxies", "", func(r *http.Request) { r.Host = "other.example" }); a.Code != 403 {
		t.Errorf("unguarded: %d %s", a.Code, a.Body)
	}
	create(t, s, "a", "")
	s.Do(t, "GET", shopEntries+"/b", "")
	metrics := s.Do(t, "GET", "/metrics", "").Body
	for _, line := range []string{
		`portolan_api_requests_total{code="201",kind="ServiceEntry",verb="create"} 1`,
		`portolan_api_requests_total{code="404",kind="ServiceEntry",verb="get"} 1`,
		`portolan_api_request_seconds_count{verb="create"} 1`,
	} {
		if !strings.Contains(metrics, line+"\n") {
			t.Errorf("no %s in\n%s", line, metrics)
		}
	}
}

// users knows one password.
type users struct{}

func (users) Authenticate(r *http.Request) (access.Identity, error) {
	if user, password, _ := r.BasicAuth(); password == "sesame" {
		return access.Identity{User: user}, nil
	}
	return access.Identity{}, errors.New("say sesame")
}

func TestAuthentication(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, func(o *rest.Options) { o.Authenticator = users{} })
	for _, path := range []string{entries, "/apis", "/metrics"} {
		if a := s.Do(t, "GET", path, ""); a.Code != 401 || !strings.Contains(a.Body, "say sesame") {
			t.Errorf("%s: %d %s", path, a.Code, a.Body)
		}
		if a := s.Do(t, "GET", path, "", func(r *http.Request) { r.SetBasicAuth("anna", "sesame") }); a.Code != 200 {
			t.Errorf("%s: %d %s", path, a.Code, a.Body)
		}
	}
	if a := s.Do(t, "POST", batches, batchOf()); a.Code != 401 {
		t.Errorf("batch: %d", a.Code)
	}
}

func TestWithoutAuthenticationOthersAreTurnedAway(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, nil)
	r := httptest.NewRequest("GET", "http://localhost"+entries, nil)
	r.RemoteAddr = "192.0.2.7:1234"
	w := httptest.NewRecorder()
	s.REST.Handler().ServeHTTP(w, r)
	if w.Code != 401 || !strings.Contains(w.Body.String(), "own machine") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestUnixSocket(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, nil)
	path := filepath.Join(t.TempDir(), "api")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: s.REST.Handler()}}
	server.Start()
	defer server.Close()
	transport := &http.Transport{}
	transport.DialContext = func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", path) }
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Get("http://localhost" + entries)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != 200 {
		t.Errorf("%s", response.Status)
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	if _, err := rest.New(rest.Options{}); err == nil {
		t.Error("a server without store and cache was made")
	}
}

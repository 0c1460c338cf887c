package xds_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cache/kube/cluster"
	"github.com/portolan-mesh/portolan/cache/kube/cluster/clustertest"
	"github.com/portolan-mesh/portolan/cache/kube/selection"
)

// document is an object as its document has it, in JSON. Its namespace is empty for one of no namespace.
// Without labels of its own it has the label app, with its name.
type document struct {
	group, version, kind, resource, namespace, name, body string

	labels map[string]string
}

func (d document) path() string { return strings.TrimPrefix(d.group+"/"+d.version+"/"+d.resource, "/") }
func (d document) key() string  { return d.namespace + "/" + d.name }

// clusterAPI is an API server of Kubernetes: it lists and watches objects of some kinds, and says
// which of these there are.
type clusterAPI struct {
	*httptest.Server
	t testing.TB

	mu      sync.Mutex // guards the fields below
	version int
	objects map[string]map[string]json.RawMessage // by path of the resource and key
	events  []clusterEvent
	changed chan struct{} // closed at the next change
}

type clusterEvent struct {
	version    int
	path, kind string
	object     json.RawMessage
}

func newClusterAPI(t testing.TB) *clusterAPI {
	a := &clusterAPI{t: t, version: 1, objects: map[string]map[string]json.RawMessage{}, changed: make(chan struct{})}
	a.Server = clustertest.Serve(t, a)
	return a
}

// connect returns a connection to the server, with the selectors of namespaces.
func (a *clusterAPI) connect(name string, selectors *selection.Selectors) *cluster.Cluster {
	a.t.Helper()
	file := filepath.Join(a.t.TempDir(), "kubeconfig")
	content := fmt.Sprintf(`{"kind": "Config", "apiVersion": "v1", "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c"}}],
"clusters": [{"name": "c", "cluster": {"server": %q}}]}`, a.URL)
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		a.t.Fatal(err)
	}
	c, err := cluster.New(cluster.Options{Name: name, File: file, RetryMin: time.Millisecond, RetryMax: 10 * time.Millisecond, Selectors: selectors})
	if err != nil {
		a.t.Fatal(err)
	}
	return c
}

// write creates or replaces an object.
func (a *clusterAPI) write(d document) {
	a.mu.Lock()
	defer a.mu.Unlock()
	path := d.path()
	if a.objects[path] == nil {
		a.objects[path] = map[string]json.RawMessage{}
	}
	a.version++
	labels := d.labels
	if labels == nil {
		labels = map[string]string{"app": d.name}
	}
	marked, err := json.Marshal(labels)
	if err != nil {
		a.t.Fatal(err)
	}
	// The age decides between objects, so it goes by the name: a later write does not change it.
	object := json.RawMessage(fmt.Sprintf(`{"apiVersion": %q, "kind": %q, "metadata": {"name": %q, "namespace": %q, "uid": %q, "resourceVersion": "%d", "creationTimestamp": "2026-01-01T00:00:%02dZ", "labels": %s}, %s}`,
		strings.TrimPrefix(d.group+"/"+d.version, "/"), d.kind, d.name, d.namespace, d.kind+d.key(), a.version, int(d.name[len(d.name)-1])%60, marked, d.body))
	event := "ADDED"
	if _, there := a.objects[path][d.key()]; there {
		event = "MODIFIED"
	}
	a.objects[path][d.key()] = object
	a.tell(clusterEvent{a.version, path, event, object})
}

// drop deletes an object that draw picks, if there is any.
func (a *clusterAPI) drop(draw func(int) int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var all [][2]string
	for _, path := range slices.Sorted(maps.Keys(a.objects)) {
		for _, key := range slices.Sorted(maps.Keys(a.objects[path])) {
			all = append(all, [2]string{path, key})
		}
	}
	if len(all) == 0 {
		return
	}
	one := all[draw(len(all))]
	a.version++
	a.tell(clusterEvent{a.version, one[0], "DELETED", a.objects[one[0]][one[1]]})
	delete(a.objects[one[0]], one[1])
}

func (a *clusterAPI) tell(e clusterEvent) {
	a.events = append(a.events, e)
	close(a.changed)
	a.changed = make(chan struct{})
}

// clusterKinds are the resources that the server has in groups, by group and resource.
var clusterKinds = map[string]map[string]string{
	"networking.istio.io": {"serviceentries": "ServiceEntry", "workloadentries": "WorkloadEntry", "virtualservices": "VirtualService", "destinationrules": "DestinationRule", "gateways": "Gateway"},
	"networking.k8s.io":   {"ingresses": "Ingress", "ingressclasses": "IngressClass"},
}

var coreKinds = map[string]string{"namespaces": "Namespace", "services": "Service", "pods": "Pod", "nodes": "Node", "endpointslices": "EndpointSlice", "secrets": "Secret"}

// ServeHTTP implements http.Handler.
func (a *clusterAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	query, path := r.URL.Query(), strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/apis"), "/api")
	parts := strings.Split(strings.Trim(path, "/"), "/")
	if len(parts) == 4 && parts[1] == "namespaces" { // the one that has all objects of its kind
		parts = []string{parts[0], parts[3]}
	}
	switch {
	case path == "":
		_ = json.NewEncoder(w).Encode(groupsOf())
	case len(parts) == 2 && clusterKinds[parts[0]] != nil:
		_ = json.NewEncoder(w).Encode(resourcesOf(parts[0]))
	case query.Get("sendInitialEvents") != "": // lists do as well
		w.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`)
	case query.Get("watch") != "":
		from, _ := strconv.Atoi(query.Get("resourceVersion"))
		a.watch(w, r, strings.Join(parts, "/"), from)
	default:
		a.list(w, parts)
	}
}

func groupsOf() *metav1.APIGroupList {
	out := &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	for _, group := range slices.Sorted(maps.Keys(clusterKinds)) {
		version := metav1.GroupVersionForDiscovery{GroupVersion: group + "/v1", Version: "v1"}
		out.Groups = append(out.Groups, metav1.APIGroup{Name: group, Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version})
	}
	return out
}

func resourcesOf(group string) *metav1.APIResourceList {
	out := &metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: group + "/v1"}
	for _, name := range slices.Sorted(maps.Keys(clusterKinds[group])) {
		out.APIResources = append(out.APIResources, metav1.APIResource{Name: name, Kind: clusterKinds[group][name], Namespaced: name != "ingressclasses", Verbs: metav1.Verbs{"list", "watch"}})
	}
	return out
}

func (a *clusterAPI) list(w http.ResponseWriter, parts []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	path, resource := strings.Join(parts, "/"), parts[len(parts)-1]
	items := []json.RawMessage{}
	for _, key := range slices.Sorted(maps.Keys(a.objects[path])) {
		items = append(items, a.objects[path][key])
	}
	kind := coreKinds[resource]
	if kind == "" {
		kind = clusterKinds[parts[0]][resource]
	}
	_ = json.NewEncoder(w).Encode(map[string]any{
		"kind": kind + "List", "apiVersion": strings.Join(parts[:len(parts)-1], "/"), "metadata": map[string]string{"resourceVersion": strconv.Itoa(a.version)}, "items": items,
	})
}

func (a *clusterAPI) watch(w http.ResponseWriter, r *http.Request, path string, from int) {
	next := 0
	for {
		a.mu.Lock()
		events, changed := a.events[next:], a.changed
		next = len(a.events)
		a.mu.Unlock()
		for _, e := range events {
			if e.path == path && e.version > from {
				_, _ = fmt.Fprintf(w, "{\"type\":%q,\"object\":%s}\n", e.kind, e.object)
			}
		}
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
			return
		case <-changed:
		}
	}
}

// Package kubetest is for tests: it has an API server with what a registry reads of a cluster.
package kubetest

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

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/portolan-mesh/portolan/cache/kube/cluster"
	"github.com/portolan-mesh/portolan/cache/kube/cluster/clustertest"
)

// API is an API server with the five kinds that a registry reads, and Secrets: lists and watches in JSON.
type API struct {
	*httptest.Server
	t testing.TB

	mu      sync.Mutex // guards the fields below
	version int
	objects map[string]map[string]metav1.Object // by resource and by namespace/name
	events  []event
	changed chan struct{} // closed at the next change
	away    bool
	closes  bool            // ends each connection without an answer
	refused int             // how many requests it did not answer
	asks    map[string]bool // resources and verbs that were asked for
	denied  string          // the resource to which nobody has a right
	lacked  string          // the resource that the server does not have
}

type event struct {
	version        int
	resource, kind string
	object         json.RawMessage
}

// New returns a server without objects, which ends with the test.
func New(t testing.TB) *API {
	a := &API{t: t, version: 1, objects: map[string]map[string]metav1.Object{}, changed: make(chan struct{}), asks: map[string]bool{}}
	a.Server = clustertest.Serve(t, a)
	return a
}

// Kubeconfig writes a kubeconfig with a context of a name for a server, and returns its path.
func Kubeconfig(t testing.TB, context, url string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	content := fmt.Sprintf(`{"kind": "Config", "apiVersion": "v1", "current-context": %[1]q, "contexts": [{"name": %[1]q, "context": {"cluster": "c"}}],
"clusters": [{"name": "c", "cluster": {"server": %[2]q}}]}`, context, url)
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// Connect returns a connection to the server, which tries again after at most 10 ms; set may change
// its options.
func (a *API) Connect(name string, set ...func(*cluster.Options)) *cluster.Cluster {
	a.t.Helper()
	o := cluster.Options{Name: name, File: Kubeconfig(a.t, name, a.URL), RetryMin: time.Millisecond, RetryMax: 10 * time.Millisecond}
	for _, set := range set {
		set(&o)
	}
	c, err := cluster.New(o)
	if err != nil {
		a.t.Fatal(err)
	}
	return c
}

func resourceOf(o metav1.Object) (resource, kind, version string) {
	switch o.(type) {
	case *corev1.Service:
		return "services", "Service", "v1"
	case *corev1.Pod:
		return "pods", "Pod", "v1"
	case *corev1.Namespace:
		return "namespaces", "Namespace", "v1"
	case *corev1.Node:
		return "nodes", "Node", "v1"
	case *corev1.Secret:
		return "secrets", "Secret", "v1"
	case *discoveryv1.EndpointSlice:
		return "endpointslices", "EndpointSlice", "discovery.k8s.io/v1"
	}
	panic("no resource")
}

func encode(o metav1.Object) json.RawMessage {
	_, kind, version := resourceOf(o)
	text, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	return json.RawMessage(fmt.Sprintf(`{"kind":%q,"apiVersion":%q,`, kind, version) + string(text[1:]))
}

func keyOf(o metav1.Object) string { return o.GetNamespace() + "/" + o.GetName() }

// Put writes objects, each under a version of its own.
func (a *API) Put(objects ...metav1.Object) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, o := range objects {
		a.set(o, false)
	}
	a.wake()
}

// Drop deletes objects.
func (a *API) Drop(objects ...metav1.Object) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, o := range objects {
		a.set(o, true)
	}
	a.wake()
}

func (a *API) set(o metav1.Object, gone bool) {
	resource, _, _ := resourceOf(o)
	a.version++
	o.SetResourceVersion(strconv.Itoa(a.version))
	if a.objects[resource] == nil {
		a.objects[resource] = map[string]metav1.Object{}
	}
	kind := "MODIFIED"
	switch {
	case gone:
		kind = "DELETED"
		delete(a.objects[resource], keyOf(o))
	case a.objects[resource][keyOf(o)] == nil:
		kind = "ADDED"
	}
	if !gone {
		a.objects[resource][keyOf(o)] = o
	}
	a.events = append(a.events, event{a.version, resource, kind, encode(o)})
}

func (a *API) wake() {
	close(a.changed)
	a.changed = make(chan struct{})
}

// Replace makes the server have exactly these objects.
func (a *API) Replace(objects ...metav1.Object) {
	a.mu.Lock()
	defer a.mu.Unlock()
	wanted := map[string]bool{}
	for _, o := range objects {
		resource, _, _ := resourceOf(o)
		wanted[resource+keyOf(o)] = true
	}
	for _, resource := range slices.Sorted(maps.Keys(a.objects)) {
		for _, key := range slices.Sorted(maps.Keys(a.objects[resource])) {
			if !wanted[resource+key] {
				a.set(a.objects[resource][key], true)
			}
		}
	}
	for _, o := range objects {
		a.set(o, false)
	}
	a.wake()
}

// GoAway makes the server refuse everything, or answer again.
func (a *API) GoAway(away bool) {
	a.mu.Lock()
	a.away = away
	a.mu.Unlock()
	a.CloseClientConnections()
}

// HangUp makes the server end each connection without an answer, or answer again.
func (a *API) HangUp(closes bool) {
	a.mu.Lock()
	a.closes = closes
	a.mu.Unlock()
	a.CloseClientConnections()
}

// Deny makes the server deny requests for a resource, or for none if it is empty.
func (a *API) Deny(resource string) {
	a.mu.Lock()
	a.denied = resource
	a.mu.Unlock()
	a.CloseClientConnections()
}

// Lack makes the server not have a resource, or have all if it is empty.
func (a *API) Lack(resource string) {
	a.mu.Lock()
	a.lacked = resource
	a.mu.Unlock()
	a.CloseClientConnections()
}

// Unanswered returns how many requests had no answer.
func (a *API) Unanswered() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.refused
}

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	resource := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	w.Header().Set("Content-Type", "application/json")
	a.mu.Lock()
	away, closes, denied, lacked := a.away, a.closes, a.denied == resource, a.lacked == resource
	if closes {
		a.refused++
	}
	verb := "list"
	if query.Get("watch") != "" {
		verb = "watch"
	}
	path := strings.TrimPrefix(r.URL.Path, "/api/v1/")
	a.asks[strings.Replace(strings.TrimPrefix(path, "/apis/"), "/v1/", "/", 1)+" "+verb] = true
	a.mu.Unlock()
	switch {
	case closes:
		if c, _, err := w.(http.Hijacker).Hijack(); err == nil {
			_ = c.Close()
		}
	case away:
		w.WriteHeader(http.StatusServiceUnavailable)
	case denied:
		w.WriteHeader(http.StatusForbidden)
		_, _ = fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`)
	case lacked:
		w.WriteHeader(http.StatusNotFound)
		_, _ = fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
	case query.Get("sendInitialEvents") != "": // lists do as well
		w.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`)
	case query.Get("watch") != "":
		from, _ := strconv.Atoi(query.Get("resourceVersion"))
		a.watch(w, r, resource, from)
	default:
		a.list(w, resource)
	}
}

// Asked returns the resources that were asked for, with their verbs, in order.
func (a *API) Asked() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Sorted(maps.Keys(a.asks))
}

func (a *API) list(w http.ResponseWriter, resource string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	items := []json.RawMessage{}
	for _, key := range slices.Sorted(maps.Keys(a.objects[resource])) {
		items = append(items, encode(a.objects[resource][key]))
	}
	kind, version := map[string]string{"services": "ServiceList", "pods": "PodList", "nodes": "NodeList", "namespaces": "NamespaceList", "secrets": "SecretList", "endpointslices": "EndpointSliceList"}[resource], "v1"
	if resource == "endpointslices" {
		version = "discovery.k8s.io/v1"
	}
	_ = json.NewEncoder(w).Encode(map[string]any{
		"kind": kind, "apiVersion": version, "metadata": map[string]string{"resourceVersion": strconv.Itoa(a.version)}, "items": items,
	})
}

func (a *API) watch(w http.ResponseWriter, r *http.Request, resource string, from int) {
	next := 0
	for {
		a.mu.Lock()
		events, changed := a.events[next:], a.changed
		next = len(a.events)
		a.mu.Unlock()
		for _, e := range events {
			if e.resource == resource && e.version > from {
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

// NewService returns a Service of the pods with its name as label app, at port 80 with the target
// 8080; edit may change it.
func NewService(namespace, name string, edit func(*corev1.Service)) *corev1.Service {
	out := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, CreationTimestamp: metav1.Unix(1000, 0)}}
	out.Spec = corev1.ServiceSpec{Selector: map[string]string{"app": name}, ClusterIP: "10.96.0.1", Ports: []corev1.ServicePort{{
		Name: "http", Port: 80, TargetPort: intstr.FromInt32(8080),
	}}}
	if edit != nil {
		edit(out)
	}
	return out
}

// NewSlice returns the EndpointSlice of a Service, with the port http.
func NewSlice(namespace, service string, port int32, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	name := "http"
	return &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: namespace, Name: service + "-abc", Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &port}}, Endpoints: endpoints,
	}
}

// NewPod returns a pod that runs and is ready, on the node n1.
func NewPod(namespace, name, address string, labels map[string]string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
		Spec:       corev1.PodSpec{NodeName: "n1", ServiceAccountName: "web"},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: address, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		},
	}
}

// EndpointOf returns the endpoint of a pod.
func EndpointOf(p *corev1.Pod) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{
		Addresses: []string{p.Status.PodIP}, NodeName: &p.Spec.NodeName,
		TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: p.Namespace, Name: p.Name},
	}
}

// NewNamespace returns a Namespace with labels.
func NewNamespace(name string, labels map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}

// NewNode returns a node in a zone.
func NewNode(name, region, zone string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		"topology.kubernetes.io/region": region, "topology.kubernetes.io/zone": zone,
	}}}
}

package kube_test

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
	"github.com/portolan-mesh/portolan/discovery/registrytest"
)

// api is an API server with the four kinds that a registry reads: lists and watches in JSON.
type api struct {
	*httptest.Server
	t testing.TB

	mu      sync.Mutex // guards the fields below
	version int
	objects map[string]map[string]metav1.Object // by resource and by namespace/name
	events  []event
	changed chan struct{} // closed at the next change
	away    bool
	asks    map[string]bool // resources and verbs that were asked for
}

type event struct {
	version        int
	resource, kind string
	object         json.RawMessage
}

func newAPI(t testing.TB) *api {
	a := &api{t: t, version: 1, objects: map[string]map[string]metav1.Object{}, changed: make(chan struct{}), asks: map[string]bool{}}
	a.Server = httptest.NewServer(a)
	t.Cleanup(func() {
		a.CloseClientConnections()
		a.Close()
	})
	return a
}

// connect returns a connection to the server.
func (a *api) connect(name string) *cluster.Cluster {
	a.t.Helper()
	file := filepath.Join(a.t.TempDir(), "kubeconfig")
	content := fmt.Sprintf(`{"kind": "Config", "apiVersion": "v1", "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c"}}],
"clusters": [{"name": "c", "cluster": {"server": %q}}]}`, a.URL)
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		a.t.Fatal(err)
	}
	c, err := cluster.New(cluster.Options{Name: name, File: file, RetryMin: time.Millisecond, RetryMax: 10 * time.Millisecond})
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
	case *corev1.Node:
		return "nodes", "Node", "v1"
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

// put writes objects, each under a version of its own.
func (a *api) put(objects ...metav1.Object) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, o := range objects {
		a.set(o, false)
	}
	a.wake()
}

// drop deletes objects.
func (a *api) drop(objects ...metav1.Object) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, o := range objects {
		a.set(o, true)
	}
	a.wake()
}

func (a *api) set(o metav1.Object, gone bool) {
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

func (a *api) wake() {
	close(a.changed)
	a.changed = make(chan struct{})
}

// replace makes the server have exactly these objects.
func (a *api) replace(objects ...metav1.Object) {
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

// goAway makes the server refuse everything, or answer again.
func (a *api) goAway(away bool) {
	a.mu.Lock()
	a.away = away
	a.mu.Unlock()
	a.CloseClientConnections()
}

// ServeHTTP implements http.Handler.
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	resource := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	w.Header().Set("Content-Type", "application/json")
	a.mu.Lock()
	away := a.away
	verb := "list"
	if query.Get("watch") != "" {
		verb = "watch"
	}
	path := strings.TrimPrefix(r.URL.Path, "/api/v1/")
	a.asks[strings.Replace(strings.TrimPrefix(path, "/apis/"), "/v1/", "/", 1)+" "+verb] = true
	a.mu.Unlock()
	switch {
	case away:
		w.WriteHeader(http.StatusServiceUnavailable)
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

// asked returns the resources that were asked for, with their verbs, in order.
func (a *api) asked() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Sorted(maps.Keys(a.asks))
}

func (a *api) list(w http.ResponseWriter, resource string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	items := []json.RawMessage{}
	for _, key := range slices.Sorted(maps.Keys(a.objects[resource])) {
		items = append(items, encode(a.objects[resource][key]))
	}
	kind, version := map[string]string{"services": "ServiceList", "pods": "PodList", "nodes": "NodeList", "endpointslices": "EndpointSliceList"}[resource], "v1"
	if resource == "endpointslices" {
		version = "discovery.k8s.io/v1"
	}
	_ = json.NewEncoder(w).Encode(map[string]any{
		"kind": kind, "apiVersion": version, "metadata": map[string]string{"resourceVersion": strconv.Itoa(a.version)}, "items": items,
	})
}

func (a *api) watch(w http.ResponseWriter, r *http.Request, resource string, from int) {
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

// offer returns the objects of the suite's services: each instance is a pod of its own.
func offer(services []registrytest.Service) (out []metav1.Object) {
	for _, s := range services {
		out = append(out, newService(s.Namespace, s.Name, func(o *corev1.Service) {
			o.Spec.Ports = []corev1.ServicePort{{Name: "http", Port: int32(s.Port)}} //nolint:gosec // ports are small
			o.Spec.ClusterIP = fmt.Sprintf("10.96.0.%d", len(out)+1)
		}))
		slice := newSlice(s.Namespace, s.Name, int32(s.Port)) //nolint:gosec // ports are small
		for n, i := range s.Instances {
			p := newPod(s.Namespace, fmt.Sprintf("%s-%d", s.Name, n), i.Address, map[string]string{"app": s.Name, "v": i.Labels["v"]})
			slice.Endpoints = append(slice.Endpoints, endpointOf(p))
			out = append(out, p)
		}
		out = append(out, slice)
	}
	return out
}

func newService(namespace, name string, edit func(*corev1.Service)) *corev1.Service {
	out := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, CreationTimestamp: metav1.Unix(1000, 0)}}
	out.Spec = corev1.ServiceSpec{Selector: map[string]string{"app": name}, ClusterIP: "10.96.0.1", Ports: []corev1.ServicePort{{
		Name: "http", Port: 80, TargetPort: intstr.FromInt32(8080),
	}}}
	if edit != nil {
		edit(out)
	}
	return out
}

func newSlice(namespace, service string, port int32, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	name := "http"
	return &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: namespace, Name: service + "-abc", Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &port}}, Endpoints: endpoints,
	}
}

func newPod(namespace, name, address string, labels map[string]string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
		Spec:       corev1.PodSpec{NodeName: "n1", ServiceAccountName: "web"},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: address, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		},
	}
}

func endpointOf(p *corev1.Pod) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{
		Addresses: []string{p.Status.PodIP}, NodeName: &p.Spec.NodeName,
		TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: p.Namespace, Name: p.Name},
	}
}

func newNode(name, region, zone string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		"topology.kubernetes.io/region": region, "topology.kubernetes.io/zone": zone,
	}}}
}

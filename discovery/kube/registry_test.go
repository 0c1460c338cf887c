package kube_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/discoverytest"
	"github.com/portolan-mesh/portolan/discovery/kube"
	"github.com/portolan-mesh/portolan/discovery/kube/kubetest"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// rig runs the registries of clusters.
type rig struct {
	t        testing.TB
	xds      *discoverytest.Recorder
	worker   *cache.Worker
	clusters *kube.Clusters
	mu       sync.Mutex // guards told
	told     []string   // the calls of the workload handlers
}

func newRig(t testing.TB, o kube.Options) *rig {
	r := idleRig(t, o)
	r.background(r.worker.Run)
	return r
}

// idleRig returns a rig whose worker does not run yet.
func idleRig(t testing.TB, o kube.Options) *rig {
	r := &rig{t: t, xds: &discoverytest.Recorder{}, worker: cache.NewWorker()}
	o.XDS, o.Worker, o.Configs = r.xds, r.worker, cache.NewFeed(cache.FeedOptions{Worker: r.worker, Schemas: schema.Pilot()})
	r.clusters = kube.New(o)
	r.clusters.AppendWorkloadHandler(func(w *discovery.WorkloadInstance, event cache.Event) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.told = append(r.told, fmt.Sprintf("%s %s/%s %s %s", event, w.Namespace, w.Name, w.Endpoint.Address, w.Endpoint.Locality.Label))
	})
	return r
}

// background runs something until the function that it returns is called, or the test ends.
func (r *rig) background(run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			r.t.Errorf("it ended with %v", err)
		}
	})
	r.t.Cleanup(stop)
	return stop
}

// follow runs the registry of a cluster, and waits until it has synced.
func (r *rig) follow(a *kubetest.API, name string) (*kube.Registry, func()) {
	r.t.Helper()
	one := r.clusters.Registry(a.Connect(name))
	stop := r.background(one.Run)
	r.await("it is synced", one.HasSynced)
	return one, stop
}

func (r *rig) await(what string, holds func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Fatalf("it does not come true that %s", what)
		}
	}
}

// do runs a task of the worker.
func (r *rig) do(task func()) {
	done := make(chan struct{})
	r.worker.Post(new(int), func() { task(); r.worker.Then(func() { close(done) }) })
	<-done
}

// workload tells of a WorkloadEntry.
func (r *rig) workload(name, address string, event cache.Event, ports map[string]uint32) {
	r.do(func() {
		r.clusters.WorkloadInstanceHandler(&discovery.WorkloadInstance{
			Name: name, Namespace: "shop", Provider: discovery.External, PortMap: ports,
			Endpoint: discovery.Endpoint{Address: address, Labels: map[string]string{"app": "web"}, Weight: 1, Namespace: "shop", WorkloadName: name},
		}, event)
	})
}

// endpoints returns the published endpoints of a host as texts.
func (r *rig) endpoints(namespace, hostname string) []string {
	out := []string{}
	for _, e := range r.xds.Rows()[namespace+"/"+hostname].Endpoints {
		text := fmt.Sprintf("%s=%s:%d", e.ServicePortName, e.Address, e.Port)
		switch e.Health {
		case discovery.Unhealthy:
			text += " unhealthy"
		case discovery.Draining:
			text += " draining"
		case discovery.OutOfUse:
			text += " out of use"
		}
		out = append(out, text)
	}
	return out
}

const webHost = "web.shop.svc.cluster.local"

// has waits until the host web has these endpoints.
func (r *rig) has(want ...string) {
	r.t.Helper()
	r.await(fmt.Sprintf("the endpoints are %v", want), func() bool { return slices.Equal(r.endpoints("shop", webHost), want) })
}

func expect(t testing.TB, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// shop returns an API server with a service of two pods, on nodes of two zones.
func shop(t testing.TB) (*kubetest.API, *corev1.Pod, *corev1.Pod, *discoveryv1.EndpointSlice) {
	a := kubetest.New(t)
	p1 := kubetest.NewPod("shop", "web-1", "10.0.0.1", map[string]string{"app": "web", "security.istio.io/tlsMode": "istio"})
	p2 := kubetest.NewPod("shop", "web-2", "10.0.0.2", map[string]string{"app": "web"})
	p2.Spec.NodeName = "n2"
	slice := kubetest.NewSlice("shop", "web", 8080, kubetest.EndpointOf(p1), kubetest.EndpointOf(p2))
	a.Put(kubetest.NewNode("n1", "eu", "a"), kubetest.NewNode("n2", "eu", "b"), p1, p2, slice, kubetest.NewService("shop", "web", nil))
	return a, p1, p2, slice
}

// TestEndpointsOfPods: an endpoint is what its pod is, where its node is.
func TestEndpointsOfPods(t *testing.T) {
	t.Parallel()
	a, _, _, _ := shop(t)
	r := newRig(t, kube.Options{})
	r.follow(a, "east")
	row := r.xds.Rows()["shop/"+webHost]
	expect(t, row.Endpoints, []*discovery.Endpoint{
		{
			Address: "10.0.0.1", Port: 8080, ServicePortName: "http", Labels: map[string]string{"app": "web", "security.istio.io/tlsMode": "istio"},
			ServiceAccount: "spiffe://cluster.local/ns/shop/sa/web", Locality: discovery.Locality{Label: "eu/a", Cluster: "east"},
			Weight: 1, TLSMode: "istio", Namespace: "shop", WorkloadName: "web-1", Node: "n1",
		},
		{
			Address: "10.0.0.2", Port: 8080, ServicePortName: "http", Labels: map[string]string{"app": "web"},
			ServiceAccount: "spiffe://cluster.local/ns/shop/sa/web", Locality: discovery.Locality{Label: "eu/b", Cluster: "east"},
			Weight: 1, TLSMode: "disabled", Namespace: "shop", WorkloadName: "web-2", Node: "n2",
		},
	})
	expect(t, row.Services, []*discovery.Service{{
		Hostname: webHost, Address: "10.96.0.1", ClusterVIPs: map[string][]string{"east": {"10.96.0.1"}}, Ports: []discovery.Port{{Name: "http", Number: 80, Protocol: discovery.HTTP}},
		CreationTime: time.Unix(1000, 0).UTC(),
		Attributes: discovery.Attributes{
			Provider: discovery.Kubernetes, Name: "web", Namespace: "shop", LabelSelectors: map[string]string{"app": "web"}, ExportTo: discovery.Visibility{},
		},
	}})
}

// TestAChangeCostsWhatItTouches: a pod or a node rebuilds the services that it serves, and what does
// not matter nothing.
func TestAChangeCostsWhatItTouches(t *testing.T) {
	t.Parallel()
	a, p1, _, slice := shop(t)
	a.Put(kubetest.NewService("shop", "other", nil))
	r := newRig(t, kube.Options{})
	r.follow(a, "east")
	r.xds.Take()
	changed := p1.DeepCopy()
	changed.Labels["v"] = "2"
	a.Put(changed)
	label := func() string { return r.xds.Rows()["shop/"+webHost].Endpoints[0].Labels["v"] }
	r.await("the label is there", func() bool { return label() == "2" })
	expect(t, r.xds.Take(), []string{"endpoints shop/" + webHost + " 2"})
	n := kubetest.NewNode("n2", "eu", "c")
	a.Put(n)
	r.await("the zone is there", func() bool { return r.xds.Rows()["shop/"+webHost].Endpoints[1].Locality.Label == "eu/c" })
	expect(t, r.xds.Take(), []string{"endpoints shop/" + webHost + " 2"})

	busy := changed.DeepCopy()
	busy.Annotations = map[string]string{"a": "b"}
	busy.Status.Conditions = append(busy.Status.Conditions, corev1.PodCondition{Type: "Other"})
	heartbeat := n.DeepCopy()
	heartbeat.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, LastHeartbeatTime: metav1.Now()}}
	a.Put(busy, heartbeat)
	last := slice.DeepCopy()
	last.Endpoints = last.Endpoints[:1]
	a.Put(last)
	r.has("http=10.0.0.1:8080")
	expect(t, r.xds.Take(), []string{"endpoints shop/" + webHost + " 1"})
	expect(t, r.xds.Redundant(), []string(nil))
}

// TestConditions: what the conditions of endpoints, and the services, make of their health.
func TestConditions(t *testing.T) {
	t.Parallel()
	a, p1, p2, slice := shop(t)
	r := newRig(t, kube.Options{})
	r.follow(a, "east")
	yes, no := true, false
	set := func(conditions discoveryv1.EndpointConditions) {
		s := slice.DeepCopy()
		s.Endpoints[0].Conditions = conditions
		a.Put(s)
	}
	set(discoveryv1.EndpointConditions{Ready: &no, Serving: &no, Terminating: &no})
	r.has("http=10.0.0.1:8080 unhealthy", "http=10.0.0.2:8080")
	set(discoveryv1.EndpointConditions{Ready: &no, Serving: &yes, Terminating: &yes})
	r.has("http=10.0.0.1:8080 draining", "http=10.0.0.2:8080")
	set(discoveryv1.EndpointConditions{Ready: &no, Serving: &no, Terminating: &yes})
	r.has("http=10.0.0.1:8080 out of use", "http=10.0.0.2:8080")
	a.Put(kubetest.NewService("shop", "web", func(s *corev1.Service) { s.Spec.PublishNotReadyAddresses = true }))
	r.has("http=10.0.0.1:8080", "http=10.0.0.2:8080")
	a.Put(kubetest.NewService("shop", "web", nil))
	set(discoveryv1.EndpointConditions{})
	r.has("http=10.0.0.1:8080", "http=10.0.0.2:8080")

	// Both families: those of the second only say who is there.
	six := kubetest.NewSlice("shop", "web", 8080, kubetest.EndpointOf(p1), kubetest.EndpointOf(p2))
	six.Name, six.AddressType = "web-six", discoveryv1.AddressTypeIPv6
	six.Endpoints[0].Addresses, six.Endpoints[1].Addresses = []string{"fd00::1"}, []string{"fd00::2"}
	a.Put(six)
	r.has("http=10.0.0.1:8080", "http=10.0.0.2:8080", "http=fd00::1:8080 out of use", "http=fd00::2:8080 out of use")
	a.Put(kubetest.NewService("shop", "web", func(s *corev1.Service) {
		s.Spec.IPFamilies, s.Spec.ClusterIPs = []corev1.IPFamily{corev1.IPv6Protocol, corev1.IPv4Protocol}, []string{"fd00::9", "10.96.0.1"}
	}))
	r.has("http=10.0.0.1:8080 out of use", "http=10.0.0.2:8080 out of use", "http=fd00::1:8080", "http=fd00::2:8080")
}

// TestServicesSelectWorkloadEntries: a Service of the type ClusterIP has the WorkloadEntries of its
// namespace that its selector selects, beside its pods.
func TestServicesSelectWorkloadEntries(t *testing.T) {
	t.Parallel()
	a, _, _, _ := shop(t)
	r := newRig(t, kube.Options{})
	r.workload("early", "10.1.0.9", cache.EventAdd, nil)
	one, _ := r.follow(a, "east")
	pods := []string{"http=10.0.0.1:8080", "http=10.0.0.2:8080"}
	r.has(append(pods, "http=10.1.0.9:8080")...)
	r.workload("vm", "10.1.0.1", cache.EventAdd, map[string]uint32{"http": 9090})
	r.has(append(pods, "http=10.1.0.9:8080", "http=10.1.0.1:9090")...)
	r.xds.Take()
	r.workload("vm", "10.1.0.1", cache.EventUpdate, map[string]uint32{"http": 9090}) // nothing new
	expect(t, r.xds.Take(), []string(nil))
	r.workload("vm", "10.0.0.2", cache.EventUpdate, map[string]uint32{"http": 9090}) // a pod's address
	r.has(append(pods, "http=10.1.0.9:8080")...)
	r.workload("early", "", cache.EventDelete, nil)
	r.workload("early", "", cache.EventDelete, nil)
	r.has(pods...)
	r.workload("vm", "10.1.0.1", cache.EventUpdate, map[string]uint32{"web": 9091})

	// A named port is that of the workload, and one that it does not have leaves it out.
	a.Put(kubetest.NewService("shop", "web", func(s *corev1.Service) { s.Spec.Ports[0].TargetPort = intstr.FromString("web") }))
	r.has(append(pods, "http=10.1.0.1:9091")...)
	a.Put(kubetest.NewService("shop", "web", func(s *corev1.Service) { s.Spec.Ports[0].TargetPort = intstr.FromString("other") }))
	r.has(pods...)
	a.Put(kubetest.NewService("shop", "web", func(s *corev1.Service) { s.Spec.Selector = map[string]string{"app": "else"} }))
	a.Put(kubetest.NewService("shop", "web", func(s *corev1.Service) { s.Spec.ClusterIP = corev1.ClusterIPNone }))
	r.await("it is headless", func() bool { return one.GetService(webHost).Resolution == discovery.Passthrough })
	r.has(pods...)
	a.Put(kubetest.NewService("shop", "web", nil))
	r.has(append(pods, "http=10.1.0.1:8080")...)
}

// TestPodsAreOffered: handlers of workloads hear of pods that are ready, with where their node is.
func TestPodsAreOffered(t *testing.T) {
	t.Parallel()
	a, p1, p2, _ := shop(t)
	r := newRig(t, kube.Options{})
	r.follow(a, "east")
	hears := func(want ...string) {
		t.Helper()
		r.await(fmt.Sprint("handlers hear ", want), func() bool {
			r.mu.Lock()
			defer r.mu.Unlock()
			if !slices.Equal(r.told, want) {
				return false
			}
			r.told = nil
			return true
		})
	}
	hears("add shop/web-1 10.0.0.1 eu/a", "add shop/web-2 10.0.0.2 eu/b")
	waiting := p1.DeepCopy()
	waiting.Status.Conditions[0].Status = corev1.ConditionFalse
	a.Put(waiting)
	hears("delete shop/web-1 10.0.0.1 eu/a")
	a.Put(p1)
	hears("add shop/web-1 10.0.0.1 eu/a")
	a.Put(kubetest.NewNode("n1", "eu", "z"))
	hears("update shop/web-1 10.0.0.1 eu/z")
	ending := p2.DeepCopy()
	ending.DeletionTimestamp = &metav1.Time{Time: time.Unix(2000, 0)}
	a.Put(ending)
	hears("delete shop/web-2 10.0.0.2 eu/b")
	a.Drop(p1, p2)
	hears("delete shop/web-1 10.0.0.1 eu/z")
}

// TestSeveralClusters: WorkloadEntries are endpoints in the first cluster that has the Service.
func TestSeveralClusters(t *testing.T) {
	t.Parallel()
	east, west := kubetest.New(t), kubetest.New(t)
	r := newRig(t, kube.Options{})
	first, _ := r.follow(east, "east")
	second, _ := r.follow(west, "west")
	r.workload("vm", "10.1.0.1", cache.EventAdd, nil)
	at := func(one *kube.Registry) int {
		if one.GetService(webHost) == nil {
			return -1
		}
		return len(one.InstancesByPort(one.GetService(webHost), 80, nil))
	}
	holds := func(inEast, inWest int) {
		t.Helper()
		r.await(fmt.Sprintf("east has %d and west %d", inEast, inWest), func() bool { return at(first) == inEast && at(second) == inWest })
	}
	web := kubetest.NewService("shop", "web", nil)
	west.Put(web)
	holds(-1, 1)
	east.Put(kubetest.NewService("shop", "web", nil))
	holds(1, 0)
	east.Drop(web)
	holds(-1, 1)
	east.Put(kubetest.NewService("shop", "web", nil))
	holds(1, 0)
}

// TestAway: a cluster that goes away keeps its last rows and says so, and what changed meanwhile
// comes when it is back.
func TestAway(t *testing.T) {
	t.Parallel()
	a, p1, p2, slice := shop(t)
	r := newRig(t, kube.Options{})
	one, _ := r.follow(a, "east")
	r.await("it is live", func() bool { return one.SourceStatuses()[0].State == discovery.SourceLive })
	a.GoAway(true)
	r.await("it says that the cluster is away", func() bool { return r.clusters.Degraded() != nil })
	expect(t, one.SourceStatuses()[0].State, discovery.SourceDegraded)
	r.has("http=10.0.0.1:8080", "http=10.0.0.2:8080")
	last := slice.DeepCopy()
	last.Endpoints = []discoveryv1.Endpoint{kubetest.EndpointOf(p2)}
	a.Put(last)
	a.Drop(p1)
	a.GoAway(false)
	r.has("http=10.0.0.2:8080")
	r.await("it is live again", func() bool { return r.clusters.Degraded() == nil })
}

// TestClosedConnections: a cluster that takes connections and closes them is away, as long as it
// does.
func TestClosedConnections(t *testing.T) {
	t.Parallel()
	a, _, _, _ := shop(t)
	r := newRig(t, kube.Options{})
	r.follow(a, "east")
	r.await("it is live", func() bool { return r.clusters.Degraded() == nil })
	a.HangUp(true)
	r.await("it says that the cluster is away", func() bool { return r.clusters.Degraded() != nil })
	for until := a.Unanswered() + 50; a.Unanswered() < until; time.Sleep(time.Millisecond) {
		if r.clusters.Degraded() == nil {
			t.Fatalf("after %d requests without an answer it says that all is well", a.Unanswered())
		}
	}
	r.has("http=10.0.0.1:8080", "http=10.0.0.2:8080")
	a.HangUp(false)
	r.await("it is live again", func() bool { return r.clusters.Degraded() == nil })
}

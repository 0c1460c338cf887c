package kube_test

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	networking "istio.io/api/networking/v1alpha3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1 "k8s.io/api/core/v1"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/kube"
	"github.com/portolan-mesh/portolan/discovery/kube/kubetest"
	"github.com/portolan-mesh/portolan/discovery/serviceentry"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// large returns the objects of services with ten pods each, on a hundred nodes, and the pods by
// service.
func large(services int) (all []metav1.Object, pods [][]*corev1.Pod) {
	for n := range 100 {
		all = append(all, kubetest.NewNode(fmt.Sprint("n", n), "eu", fmt.Sprint("z", n%3)))
	}
	for s := range services {
		name := fmt.Sprintf("web%d", s)
		slice := kubetest.NewSlice("shop", name, 8080)
		var of []*corev1.Pod
		for p := range 10 {
			pod := kubetest.NewPod("shop", fmt.Sprintf("%s-%d", name, p), fmt.Sprintf("10.%d.%d.%d", s>>8, s&255, p+1), map[string]string{"app": name})
			pod.Spec.NodeName = fmt.Sprint("n", (s+p)%100)
			slice.Endpoints = append(slice.Endpoints, kubetest.EndpointOf(pod))
			of = append(of, pod)
			all = append(all, pod)
		}
		pods = append(pods, of)
		all = append(all, slice, kubetest.NewService("shop", name, nil))
	}
	return all, pods
}

// BenchmarkLarge is the first sync of 5,000 services with 50,000 pods, with the heap that they
// take, then one pod's change until its row is published, and then a rolling update of 500 pods.
func BenchmarkLarge(b *testing.B) {
	all, pods := large(5000)
	a := kubetest.New(b)
	a.Put(all...)
	heap := func() float64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc) / (1 << 20)
	}
	for b.Loop() {
		before := heap()
		r := newRig(b, kube.Options{})
		began := time.Now()
		_, stop := r.follow(a, "east")
		b.ReportMetric(time.Since(began).Seconds(), "s/sync")
		b.ReportMetric(heap()-before, "MB")
		r.xds.Take()

		change := func(p *corev1.Pod) string {
			p.Labels["v"] = fmt.Sprint(time.Now().UnixNano())
			a.Put(p)
			return p.Labels["v"]
		}
		label := func(service int) string {
			return r.xds.Rows()[fmt.Sprintf("shop/web%d.shop.svc.cluster.local", service)].Endpoints[0].Labels["v"]
		}
		began = time.Now()
		want := change(pods[7][0])
		r.await("the pod's label is there", func() bool { return label(7) == want })
		b.ReportMetric(float64(time.Since(began).Microseconds()), "µs/pod")
		r.xds.Take()
		for s := range 50 {
			for _, p := range pods[100+s] {
				want = change(p)
			}
		}
		r.await("the last pod's label is there", func() bool {
			return slices.ContainsFunc(r.xds.Rows()["shop/web149.shop.svc.cluster.local"].Endpoints, func(e *discovery.Endpoint) bool { return e.Labels["v"] == want })
		})
		b.ReportMetric(float64(len(r.xds.Take())), "rows/500pods")
		stop()
	}
}

// oneChange returns a function that changes one of the workloads of services with ten each, and
// waits until its row is published: a pod of a cluster, or a WorkloadEntry.
func oneChange(tb testing.TB, services int, what string) func(n int) {
	r := idleRig(tb, kube.Options{})
	if what == "pod" {
		r.background(r.worker.Run)
		all, pods := large(services)
		a := kubetest.New(tb)
		a.Put(all...)
		one, _ := r.follow(a, "east")
		r.await("it is live", func() bool { return one.SourceStatuses()[0].State == discovery.SourceLive })
		return func(n int) {
			p := *pods[n%services][0] // the API server has the pod itself
			p.Labels = map[string]string{"app": p.Labels["app"], "v": fmt.Sprint(n)}
			one.Tell(&p)
			r.do(func() {})
		}
	}
	feed := cache.NewFeed(cache.FeedOptions{Worker: r.worker, Schemas: schema.Pilot()})
	serviceentry.New(serviceentry.Options{XDS: r.xds, Worker: r.worker, Configs: configs{feed}})
	r.background(r.worker.Run)
	var written pmap.Map[*config.Config]
	put := func(o *config.Config) { written = written.Set(o.Key().Path(), o) }
	workload := func(s, w int, v string) *config.Config {
		name := fmt.Sprintf("web%d", s)
		return object(schema.WorkloadEntry, fmt.Sprintf("%s-%d", name, w), &networking.WorkloadEntry{
			Address: fmt.Sprintf("10.%d.%d.%d", s>>8, s&255, w+1), Labels: map[string]string{"app": name, "v": v}, Locality: "eu/a", ServiceAccount: "web",
		})
	}
	for s := range services {
		name := fmt.Sprintf("web%d", s)
		put(object(schema.ServiceEntry, name, &networking.ServiceEntry{
			Hosts: []string{name + ".example"}, Resolution: networking.ServiceEntry_STATIC, WorkloadSelector: &networking.WorkloadSelector{Labels: map[string]string{"app": name}},
			Ports: []*networking.ServicePort{{Number: 80, Name: "http", Protocol: "HTTP", TargetPort: 8080}},
		}))
		for w := range 10 {
			put(workload(s, w, ""))
		}
	}
	revision := int64(1)
	publish := func() {
		feed.Publish(cache.NewSnapshot(revision, written))
		revision++
		r.do(func() {})
	}
	publish()
	return func(n int) {
		put(workload(n%services, 0, fmt.Sprint(n)))
		publish()
	}
}

// BenchmarkOneChange is the change of a pod beside that of a WorkloadEntry, among 50,000 of them,
// until its row is published.
func BenchmarkOneChange(b *testing.B) {
	for _, what := range []string{"pod", "workloadentry"} {
		b.Run(what, func(b *testing.B) {
			change := oneChange(b, 5000, what)
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				n++
				change(n)
			}
		})
	}
}

// TestOnePodCostsWhatOneEndpointCosts, in allocations, which no other program disturbs.
func TestOnePodCostsWhatOneEndpointCosts(t *testing.T) {
	allocations := func(what string) float64 {
		change, n := oneChange(t, 200, what), 0
		return testing.AllocsPerRun(200, func() { n++; change(n) })
	}
	pod, entry := allocations("pod"), allocations("workloadentry")
	t.Logf("a pod takes %.0f allocations, a WorkloadEntry %.0f", pod, entry)
	if pod > 1.5*entry {
		t.Errorf("a pod takes %.0f allocations, a WorkloadEntry %.0f", pod, entry)
	}
}

package kube_test

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1 "k8s.io/api/core/v1"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/kube"
)

// large returns the objects of services with ten pods each, on a hundred nodes, and the pods by
// service.
func large(services int) (all []metav1.Object, pods [][]*corev1.Pod) {
	for n := range 100 {
		all = append(all, newNode(fmt.Sprint("n", n), "eu", fmt.Sprint("z", n%3)))
	}
	for s := range services {
		name := fmt.Sprintf("web%d", s)
		slice := newSlice("shop", name, 8080)
		var of []*corev1.Pod
		for p := range 10 {
			pod := newPod("shop", fmt.Sprintf("%s-%d", name, p), fmt.Sprintf("10.%d.%d.%d", s>>8, s&255, p+1), map[string]string{"app": name})
			pod.Spec.NodeName = fmt.Sprint("n", (s+p)%100)
			slice.Endpoints = append(slice.Endpoints, endpointOf(pod))
			of = append(of, pod)
			all = append(all, pod)
		}
		pods = append(pods, of)
		all = append(all, slice, newService("shop", name, nil))
	}
	return all, pods
}

// BenchmarkLarge is the first sync of 5,000 services with 50,000 pods, with the heap that they
// take, then one pod's change until its row is published, and then a rolling update of 500 pods.
func BenchmarkLarge(b *testing.B) {
	all, pods := large(5000)
	a := newAPI(b)
	a.put(all...)
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
			a.put(p)
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

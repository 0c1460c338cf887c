package kube_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/portolan-mesh/portolan/discovery/kube"
	"github.com/portolan-mesh/portolan/discovery/kube/kubetest"
)

// manual returns the endpoint of an address of which the slice does not say the pod.
func manual(address string) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{Addresses: []string{address}}
}

// manualSlice returns a slice of web that somebody wrote.
func manualSlice(name string, family discoveryv1.AddressType, of ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	out := kubetest.NewSlice("shop", "web", 8080, of...)
	out.Name, out.AddressType = name, family
	return out
}

// TestSecondFamily: a pod is an endpoint in use once, in the Service's first family if it is there.
// What is no pod, or is in the second family alone, is in use there.
func TestSecondFamily(t *testing.T) {
	t.Parallel()
	a := kubetest.New(t)
	a.Put(kubetest.NewService("shop", "web", func(s *corev1.Service) {
		s.Spec.ClusterIP, s.Spec.Selector = corev1.ClusterIPNone, nil
		s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol} // the default of such a Service
	}))
	six := manualSlice("six", discoveryv1.AddressTypeIPv6, manual("fd00::7"))
	a.Put(six)
	r := newRig(t, kube.Options{})
	r.follow(a, "east")
	r.has("http=fd00::7:8080")
	expect(t, r.clusters.Status()[0].Flaws, []kube.Flaw(nil))

	// Other machines in the first family take nothing away.
	four := manualSlice("four", discoveryv1.AddressTypeIPv4, manual("192.0.2.7"))
	a.Put(four)
	r.has("http=192.0.2.7:8080", "http=fd00::7:8080")

	// A pod of both families is one endpoint, whether the slices name it or not.
	pod := kubetest.NewPod("shop", "both", "10.0.0.1", nil)
	pod.Status.PodIPs = []corev1.PodIP{{IP: "10.0.0.1"}, {IP: "fd00::1"}}
	a.Put(pod)
	four, six = four.DeepCopy(), six.DeepCopy()
	four.Endpoints = []discoveryv1.Endpoint{kubetest.EndpointOf(pod)}
	named := kubetest.EndpointOf(pod)
	named.Addresses = []string{"fd00::1"}
	six.Endpoints = append(six.Endpoints, named)
	a.Put(four, six)
	r.has("http=10.0.0.1:8080", "http=fd00::1:8080 out of use", "http=fd00::7:8080")
	unnamed := six.DeepCopy()
	unnamed.Endpoints = []discoveryv1.Endpoint{manual("fd00::1"), manual("fd00::7")}
	a.Put(unnamed)
	r.has("http=10.0.0.1:8080", "http=fd00::1:8080 out of use", "http=fd00::7:8080")

	// A port that the first family does not have is served by the second.
	port, grpc := int32(9090), "grpc"
	more := unnamed.DeepCopy()
	more.Ports = append(more.Ports, discoveryv1.EndpointPort{Name: &grpc, Port: &port})
	a.Put(more)
	r.has("http=10.0.0.1:8080", "grpc=fd00::1:9090", "grpc=fd00::7:9090", "http=fd00::1:8080 out of use", "http=fd00::7:8080")
	a.Put(unnamed.DeepCopy())

	// Once it is in the second family alone, it is in use there.
	a.Drop(four)
	r.has("http=fd00::1:8080", "http=fd00::7:8080")
}

// TestManualEndpoints: an endpoint whose pod the slice does not name is the pod at its address in the
// namespace, if one pod alone is there.
func TestManualEndpoints(t *testing.T) {
	t.Parallel()
	a := kubetest.New(t)
	pod := func(namespace, name, address string, edit func(*corev1.Pod)) *corev1.Pod {
		out := kubetest.NewPod(namespace, name, address, map[string]string{"pod": name, "security.istio.io/tlsMode": "istio"})
		if edit != nil {
			edit(out)
		}
		return out
	}
	host := func(p *corev1.Pod) { p.Spec.HostNetwork = true }
	zone, hinted := "elsewhere", manual("192.0.2.1")
	hinted.Zone = &zone
	hinted.Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "z"}}, ForNodes: []discoveryv1.ForNode{{Name: "n1"}}}
	hinted.TargetRef = &corev1.ObjectReference{Kind: "VirtualMachine", Namespace: "shop", Name: "vm"}
	one, same := pod("shop", "one", "10.0.0.1", nil), pod("shop", "same", "10.0.0.2", nil)
	dual := pod("shop", "dual", "10.0.0.4", func(p *corev1.Pod) { p.Status.PodIPs = []corev1.PodIP{{IP: "10.0.0.4"}, {IP: "10.0.0.5"}} })
	a.Put(kubetest.NewNode("n1", "eu", "a"), one, dual, same, pod("shop", "again", "10.0.0.2", nil), pod("other", "there", "10.0.0.3", nil),
		pod("shop", "agent", "192.0.2.9", host), pod("shop", "app", "10.0.0.6", nil), pod("shop", "proxy", "10.0.0.6", host),
		kubetest.NewService("shop", "web", func(s *corev1.Service) { s.Spec.Selector = nil }), kubetest.NewService("shop", "other", nil),
		manualSlice("web-1", discoveryv1.AddressTypeIPv4, manual("10.0.0.1"), manual("10.0.0.2"), manual("10.0.0.3"), manual("10.0.0.5"), manual("10.0.0.6"), hinted, manual("192.0.2.9")))
	r := newRig(t, kube.Options{})
	r.follow(a, "east")
	are := func() (out []string) {
		for _, e := range r.xds.Rows()["shop/"+webHost].Endpoints {
			out = append(out, fmt.Sprintf("%s %s %v %s %s %s %s", e.Address, e.WorkloadName, e.Labels["pod"], e.ServiceAccount, e.TLSMode, e.Locality.Label, e.Node))
		}
		return out
	}
	expect(t, are(), []string{
		"10.0.0.1 one one spiffe://cluster.local/ns/shop/sa/web istio eu/a n1",
		"10.0.0.2    disabled  ", // two pods
		"10.0.0.3    disabled  ", // a pod of another namespace
		"10.0.0.5 dual dual spiffe://cluster.local/ns/shop/sa/web istio eu/a n1",
		"10.0.0.6 app app spiffe://cluster.local/ns/shop/sa/web istio eu/a n1",
		"192.0.2.1    disabled /elsewhere ",
		"192.0.2.9    disabled  ", // a pod in the network of its node
	})

	// What happens to the pod and its node changes this one row.
	r.xds.Take()
	becomes := func(at int, want string) {
		t.Helper()
		r.await("it is "+want, func() bool { return are()[at] == want })
		expect(t, r.xds.Take(), []string{"endpoints shop/" + webHost + " 7"})
	}
	a.Drop(same)
	becomes(1, "10.0.0.2 again again spiffe://cluster.local/ns/shop/sa/web istio eu/a n1")
	relabelled := one.DeepCopy()
	relabelled.Labels["pod"] = "first"
	a.Put(relabelled)
	becomes(0, "10.0.0.1 one first spiffe://cluster.local/ns/shop/sa/web istio eu/a n1")
	a.Put(kubetest.NewNode("n1", "eu", "b"))
	becomes(0, "10.0.0.1 one first spiffe://cluster.local/ns/shop/sa/web istio eu/b n1")
	moved := dual.DeepCopy()
	moved.Status.PodIPs = moved.Status.PodIPs[:1]
	a.Put(moved)
	becomes(3, "10.0.0.5    disabled  ")
	moved = relabelled.DeepCopy()
	moved.Status.PodIP = "10.0.0.3"
	a.Put(moved)
	becomes(2, "10.0.0.3 one first spiffe://cluster.local/ns/shop/sa/web istio eu/b n1")
	expect(t, are()[0], "10.0.0.1    disabled  ")
}

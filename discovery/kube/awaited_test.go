package kube_test

import (
	"testing"

	"github.com/portolan-mesh/portolan/discovery/kube"
	"github.com/portolan-mesh/portolan/discovery/kube/kubetest"
)

// TestEndpointsWaitForTheirPods: an endpoint whose slice names a pod is served once the pod is known, and
// the status names what is left out. One without a pod is served at once.
func TestEndpointsWaitForTheirPods(t *testing.T) {
	t.Parallel()
	a, p1, _, slice := shop(t)
	late, other := kubetest.NewPod("shop", "web-3", "10.0.0.3", map[string]string{"app": "web"}), kubetest.NewPod("shop", "", "10.0.0.4", nil)
	more := slice.DeepCopy()
	more.Endpoints = append(more.Endpoints, kubetest.EndpointOf(late), kubetest.EndpointOf(other))
	more.Endpoints[3].TargetRef = nil
	a.Put(more)
	r := newRig(t, kube.Options{})
	r.follow(a, "east")
	r.has("http=10.0.0.1:8080", "http=10.0.0.2:8080", "http=10.0.0.4:8080")
	flaw := kube.Flaw{
		Object: "EndpointSlice shop/" + slice.Name,
		Reason: "the cluster does not tell of these pods yet, and their endpoints are left out until it does: web-3",
	}
	expect(t, r.clusters.Status()[0].Flaws, []kube.Flaw{flaw})

	a.Put(late)
	r.has("http=10.0.0.1:8080", "http=10.0.0.2:8080", "http=10.0.0.3:8080", "http=10.0.0.4:8080")
	for _, e := range r.xds.Rows()["shop/"+webHost].Endpoints {
		if e.Address == "10.0.0.3" && (e.ServiceAccount == "" || e.Labels["app"] != "web") {
			t.Errorf("the endpoint of a pod that came late is %+v", e)
		}
	}
	r.await("nothing is left out", func() bool { return len(r.clusters.Status()[0].Flaws) == 0 })

	a.Drop(p1)
	r.has("http=10.0.0.2:8080", "http=10.0.0.3:8080", "http=10.0.0.4:8080")
	a.Drop(slice)
	r.has()
	a.Put(slice, p1)
	r.has("http=10.0.0.1:8080", "http=10.0.0.2:8080")
}

// TestEndpointsDoNotWaitForDeniedPods: where the cluster does not tell of pods, also from some time on, all
// endpoints of slices are served.
func TestEndpointsDoNotWaitForDeniedPods(t *testing.T) {
	t.Parallel()
	a, _, _, slice := shop(t)
	more := slice.DeepCopy()
	more.Endpoints = append(more.Endpoints, kubetest.EndpointOf(kubetest.NewPod("shop", "web-3", "10.0.0.3", nil)))
	a.Put(more)
	all := []string{"http=10.0.0.1:8080", "http=10.0.0.2:8080", "http=10.0.0.3:8080"}
	r := newRig(t, kube.Options{})
	r.follow(a, "east")
	r.has(all[:2]...)
	a.Deny("pods")
	r.has(all...)
	fresh := newRig(t, kube.Options{})
	fresh.follow(a, "east")
	fresh.has(all...)
	a.Deny("")
	r.has(all[:2]...)
	fresh.has(all[:2]...)
}

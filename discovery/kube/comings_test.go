package kube_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/kube"
	"github.com/portolan-mesh/portolan/discovery/kube/kubetest"
)

// followRemote runs the registry of a cluster of a Secret, until leave is called.
func (r *rig) followRemote(a *kubetest.API, name string) (one *kube.Registry, leave func()) {
	r.t.Helper()
	one = r.clusters.Remote(a.Connect(name), "secret/istio-system/"+name)
	stop := r.background(one.Run)
	return one, func() {
		stop()
		r.do(one.Leave)
	}
}

func (r *rig) names() (out []string) {
	for _, one := range r.clusters.Registries() {
		out = append(out, one.Cluster())
	}
	return out
}

// TestLeave: a cluster that leaves takes its rows and its pods with it, and another cluster has the
// workloads of other registries.
func TestLeave(t *testing.T) {
	t.Parallel()
	north, west := kubetest.New(t), kubetest.New(t)
	web := kubetest.NewService("shop", "web", nil)
	pod := kubetest.NewPod("shop", "web-1", "10.0.0.1", map[string]string{"app": "web"})
	north.Put(web, kubetest.NewSlice("shop", "web", 8080, kubetest.EndpointOf(pod)), pod)
	west.Put(kubetest.NewService("shop", "web", nil))
	r := newRig(t, kube.Options{})
	r.workload("vm", "10.1.0.1", cache.EventAdd, nil)
	second, _ := r.followRemote(west, "west")
	first, leave := r.followRemote(north, "north") // later, and its place is before that of west
	at := func(one *kube.Registry) int {
		if one.GetService(webHost) == nil {
			return -1
		}
		return len(one.InstancesByPort(one.GetService(webHost), 80, nil))
	}
	r.await("north has the machine and a pod", func() bool { return at(first) == 2 && at(second) == 0 })
	expect(t, r.names(), []string{"north", "west"})
	expect(t, []string{first.Status().Secret, second.Status().Secret}, []string{"secret/istio-system/north", "secret/istio-system/west"})

	leave()
	expect(t, []int{at(first), at(second)}, []int{-1, 1})
	expect(t, r.names(), []string{"west"})
	r.mu.Lock()
	defer r.mu.Unlock()
	expect(t, r.told, []string{"add shop/web-1 10.0.0.1 ", "delete shop/web-1 10.0.0.1 "})
}

// TestReconnect: what a cluster has by another connection replaces what it had. Until then that
// stays, however the other connection is.
func TestReconnect(t *testing.T) {
	t.Parallel()
	a, _, _, _ := shop(t)
	r := newRig(t, kube.Options{})
	one, _ := r.followRemote(a, "east")
	r.has("http=10.0.0.1:8080", "http=10.0.0.2:8080")
	r.await("it is live", func() bool { return one.SourceStatuses()[0].State == discovery.SourceLive })
	calls := r.xds.Take

	other := kubetest.New(t)
	other.GoAway(true)
	calls()
	one.Reconnect(other.Connect("east"), "secret/istio-system/next")
	r.await("it says that the cluster is away", func() bool { return one.Away() != nil })
	r.await("what it had counts as last known", func() bool { return one.SourceStatuses()[0].State == discovery.SourceLastKnown })
	expect(t, one.Status().Secret, "secret/istio-system/next")
	if _, confirmed := one.Known(); confirmed {
		t.Error("the other cluster has not confirmed what is known")
	}
	expect(t, calls(), []string(nil))

	p := kubetest.NewPod("shop", "web-3", "10.0.0.3", map[string]string{"app": "web"})
	other.Put(kubetest.NewNode("n1", "eu", "a"), p, kubetest.NewSlice("shop", "web", 8080, kubetest.EndpointOf(p)), kubetest.NewService("shop", "web", nil))
	other.GoAway(false)
	r.has("http=10.0.0.3:8080")
	r.await("it is live again", func() bool { return one.SourceStatuses()[0].State == discovery.SourceLive && one.Away() == nil })
	expect(t, calls(), []string{"endpoints shop/" + webHost + " 1"})
	known, _ := one.Known()
	paths := slices.Collect(known.Items.Keys())
	expect(t, paths, []string{"node/n1", "pod/shop/web-3", "service/shop/web", "slice/shop/web/web-abc"})

	for range 20 { // the last connection counts, however fast they change
		one.Reconnect(a.Connect("east"), "a")
		one.Reconnect(other.Connect("east"), "b")
		one.Reconnect(a.Connect("east"), "c")
	}
	r.has("http=10.0.0.1:8080", "http=10.0.0.2:8080")
	expect(t, one.Status().Secret, "c")
	expect(t, fmt.Sprint(one.Away()), "<nil>")
}

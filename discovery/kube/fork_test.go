package kube_test

import (
	"testing"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/discoverytest"
	"github.com/portolan-mesh/portolan/discovery/kube"
)

// TestAForkSelects: a fork has the endpoints that it would have with another workload, and the
// registry has not.
func TestAForkSelects(t *testing.T) {
	t.Parallel()
	a, _, _, _ := shop(t)
	r := newRig(t, kube.Options{})
	one, _ := r.follow(a, "east")
	var fork discovery.SelectingFork
	r.do(func() { fork, _ = one.Fork().(discovery.SelectingFork) })
	xds := &discoverytest.Recorder{}
	would := fork.Select([]discovery.Offer{{Event: cache.EventAdd, Workload: &discovery.WorkloadInstance{
		Name: "vm", Namespace: "shop", Provider: discovery.External, Endpoint: discovery.Endpoint{Address: "10.1.0.1", Labels: map[string]string{"app": "web"}, Weight: 1},
	}}}, xds)
	count := func(of discovery.ServiceDiscovery) int {
		return len(of.InstancesByPort(of.GetService(webHost), 80, nil))
	}
	expect(t, []int{count(would), count(fork), count(one)}, []int{3, 2, 2})
	expect(t, xds.Take(), []string{"endpoints shop/" + webHost + " 3"})

	after, _ := would.(discovery.SelectingFork)
	expect(t, []bool{after.Selects("shop", "vm"), fork.Selects("shop", "vm"), after.Selects("shop", "other")}, []bool{true, false, false})
	var anew []string
	for key := range would.(discovery.Advisor).AdvisedAnew(fork) {
		anew = append(anew, key.String())
	}
	expect(t, anew, []string{"workloadentry/shop/vm"})
}

// TestDefaultExportTo: Services without the annotation follow the mesh's default.
func TestDefaultExportTo(t *testing.T) {
	t.Parallel()
	a, _, _, _ := shop(t)
	r := newRig(t, kube.Options{DefaultExportTo: func(*cache.Snapshot) []string { return []string{"."} }})
	one, _ := r.follow(a, "east")
	var fork discovery.Fork
	r.do(func() { fork = one.Fork() })
	would := fork.Apply(nil, nil, &discoverytest.Recorder{})
	expect(t, would.GetService(webHost).Attributes.ExportTo, discovery.Visibility{"shop"})
}

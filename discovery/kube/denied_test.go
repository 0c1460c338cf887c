package kube_test

import (
	"strings"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/kube"
	"github.com/portolan-mesh/portolan/discovery/kube/kubetest"
)

// zones returns the localities of the endpoints of web.
func (r *rig) zones() (out []string) {
	for _, e := range r.xds.Rows()["shop/"+webHost].Endpoints {
		out = append(out, e.Locality.Label)
	}
	return out
}

// TestOneKindIsDenied: a first start serves the kinds that the account may read, says what it lacks,
// and takes the last kind once it may.
func TestOneKindIsDenied(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		spoil func(*kubetest.API, string)
	}{
		{"denied", (*kubetest.API).Deny},
		{"absent", (*kubetest.API).Lack},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a, _, _, slice := shop(t)
			c.spoil(a, "nodes")
			r := newRig(t, kube.Options{FirstPatience: time.Hour})
			one, _ := r.follow(a, "east")
			r.has("http=10.0.0.1:8080", "http=10.0.0.2:8080")
			expect(t, r.zones(), []string{"", ""})
			expect(t, one.SourceStatuses()[0].State, discovery.SourceDegraded)
			if err := one.Degraded(); !strings.Contains(err.Error(), "what was known of it is served") || !strings.Contains(err.Error(), "nodes") {
				t.Errorf("it says %v", err)
			}
			if _, ok := one.Known(); ok {
				t.Error("a part of the cluster would be saved as all of it")
			}
			last := slice.DeepCopy()
			last.Endpoints = last.Endpoints[1:]
			a.Put(last)
			r.has("http=10.0.0.2:8080")
			c.spoil(a, "")
			r.await("the zone is there", func() bool { return r.zones()[0] == "eu/b" })
			r.await("it is live", func() bool { return one.SourceStatuses()[0].State == discovery.SourceLive })
			r.await("its content can be saved", func() bool { _, ok := one.Known(); return ok })
		})
	}
}

// TestOneKindIsDeniedAfterRestart: a server that starts has the rows of one that kept running. A denied
// kind has its last known objects, and the other kinds have those of the cluster.
func TestOneKindIsDeniedAfterRestart(t *testing.T) {
	t.Parallel()
	a, p1, p2, slice := shop(t)
	memory := newRig(t, kube.Options{}).saved(a)
	running := newRig(t, kube.Options{})
	running.follow(a, "east")
	a.Deny("nodes")
	last := slice.DeepCopy()
	last.Endpoints = []discoveryv1.Endpoint{kubetest.EndpointOf(p2)}
	a.Put(last)
	a.Drop(p1)
	running.has("http=10.0.0.2:8080")
	expect(t, running.zones(), []string{"eu/b"})

	r := newRig(t, kube.Options{Memory: memory, Patience: time.Hour})
	one, _ := r.follow(a, "east")
	r.has("http=10.0.0.2:8080")
	expect(t, r.xds.Rows(), running.xds.Rows())
	status := r.clusters.Status()[0]
	expect(t, []any{status.Pods, status.AsOf == nil, one.SourceStatuses()[0].State}, []any{1, true, discovery.SourceDegraded})
	if _, ok := one.Known(); ok {
		t.Error("nodes that the cluster has not confirmed would be saved")
	}

	// Nodes that went meanwhile go with the first list.
	a.Drop(kubetest.NewNode("n2", "eu", "b"))
	a.Deny("")
	r.await("the zone is gone", func() bool { return r.zones()[0] == "" })
	r.await("it is live", func() bool { return one.SourceStatuses()[0].State == discovery.SourceLive })
}

// TestNoRowBeforeTheRecall: as long as the store does not say what was last known of a denied kind,
// nothing is published without it.
func TestNoRowBeforeTheRecall(t *testing.T) {
	t.Parallel()
	a, _, _, _ := shop(t)
	memory := newRig(t, kube.Options{}).saved(a)
	memory.fails = 3
	a.Deny("nodes")
	r := newRig(t, kube.Options{Memory: memory, Patience: time.Hour})
	r.follow(a, "east")
	for _, line := range r.xds.Take() {
		t.Log(line)
	}
	expect(t, r.zones(), []string{"eu/a", "eu/b"})
	expect(t, r.xds.Redundant(), []string(nil))
}

// TestOneKindIsDeniedByTheNextAccount: a registry that follows its cluster by another connection does
// not wait for what the other account may not read.
func TestOneKindIsDeniedByTheNextAccount(t *testing.T) {
	t.Parallel()
	a, _, p2, slice := shop(t)
	r := newRig(t, kube.Options{})
	one := r.clusters.Remote(a.Connect("east"), "first")
	r.background(one.Run)
	r.has("http=10.0.0.1:8080", "http=10.0.0.2:8080")
	b := kubetest.New(t)
	last := slice.DeepCopy()
	last.Endpoints = []discoveryv1.Endpoint{kubetest.EndpointOf(p2)}
	b.Put(p2, last, kubetest.NewService("shop", "web", nil))
	b.Deny("nodes")
	one.Reconnect(b.Connect("east"), "second")
	r.has("http=10.0.0.2:8080")
	expect(t, r.zones(), []string{"eu/b"})
	expect(t, r.clusters.Status()[0].Pods, 1)
}

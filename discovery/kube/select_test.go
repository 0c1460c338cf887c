package kube_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/portolan-mesh/portolan/cache/kube/cluster"
	"github.com/portolan-mesh/portolan/cache/kube/selection"
	"github.com/portolan-mesh/portolan/discovery/kube"
	"github.com/portolan-mesh/portolan/discovery/kube/kubetest"
)

// labelled are selectors of the namespaces with a label.
func labelled(t *testing.T, label string) *selection.Selectors {
	t.Helper()
	s := selection.NewSelectors()
	setLabel(t, s, label)
	return s
}

// setLabel selects the namespaces with a label, all if it is empty.
func setLabel(t *testing.T, s *selection.Selectors, label string) {
	t.Helper()
	var of []*meshv1alpha1.LabelSelector
	if label != "" {
		of = append(of, &meshv1alpha1.LabelSelector{MatchLabels: map[string]string{label: ""}})
	}
	if err := s.Set(of); err != nil {
		t.Fatal(err)
	}
}

// selecting runs the registry of a cluster with selectors, and waits until it has synced.
func (r *rig) selecting(a *kubetest.API, set func(*cluster.Options)) (*kube.Registry, *cluster.Cluster) {
	r.t.Helper()
	connection := a.Connect("east", set)
	one := r.clusters.Registry(connection)
	r.background(one.Run)
	r.await("it is synced", one.HasSynced)
	return one, connection
}

// gone waits until the host web has no row.
func (r *rig) gone() {
	r.t.Helper()
	r.await("web is gone", func() bool { return len(r.xds.Rows()["shop/"+webHost].Services) == 0 })
}

func inMesh() map[string]string { return map[string]string{"mesh": ""} }

// TestNamespacesThatCount: services and pods come and go with the labels of their namespace and with
// the selectors. Changes of those that do not count are kept.
func TestNamespacesThatCount(t *testing.T) {
	t.Parallel()
	a, _, p2, slice := shop(t)
	a.Put(kubetest.NewNamespace("shop", nil), kubetest.NewNamespace("other", inMesh()))
	r, selectors := newRig(t, kube.Options{}), labelled(t, "mesh")
	one, connection := r.selecting(a, func(o *cluster.Options) { o.Selectors = selectors })
	r.gone()
	if known, ok := one.Known(); !ok || known.Items.Len() != 2 { // the nodes
		t.Errorf("known are %d objects, %v", known.Items.Len(), ok)
	}
	a.Put(kubetest.NewNamespace("shop", inMesh()))
	r.has("http=10.0.0.1:8080", "http=10.0.0.2:8080")
	r.mu.Lock()
	expect(t, r.told, []string{"add shop/web-1 10.0.0.1 eu/a", "add shop/web-2 10.0.0.2 eu/b"})
	r.told = nil
	r.mu.Unlock()
	a.Put(kubetest.NewNamespace("shop", nil))
	r.gone()
	r.mu.Lock()
	expect(t, r.told, []string{"delete shop/web-1 10.0.0.1 eu/a", "delete shop/web-2 10.0.0.2 eu/b"})
	r.mu.Unlock()
	expect(t, one.Status().Services+one.Status().Pods+one.Status().Endpoints, 0)

	a.Drop(p2)
	slice.Endpoints = slice.Endpoints[:1]
	a.Put(slice)
	setLabel(t, selectors, "")
	r.has("http=10.0.0.1:8080")
	r.await("Namespaces are not followed", func() bool { _, _, followed := connection.Namespaces(); return !followed })
	setLabel(t, selectors, "other")
	r.gone()
	setLabel(t, selectors, "")
	r.has("http=10.0.0.1:8080")
}

// TestNamespacesDenied: without the right to Namespaces all count if none was ever known, and else
// those that did.
func TestNamespacesDenied(t *testing.T) {
	t.Parallel()
	a, _, _, _ := shop(t)
	a.Put(kubetest.NewNamespace("shop", nil))
	a.Deny("namespaces")
	r, selectors := newRig(t, kube.Options{}), labelled(t, "mesh")
	one, _ := r.selecting(a, func(o *cluster.Options) { o.Selectors = selectors })
	r.has("http=10.0.0.1:8080", "http=10.0.0.2:8080")
	r.await("it says what is denied", func() bool {
		err := one.Degraded()
		return err != nil && strings.Contains(err.Error(), "the account may not list and watch namespaces for the discoverySelectors of the mesh: see docs/operations/mesh-config.md")
	})
	a.Deny("")
	r.gone()
	r.await("nothing is wrong", func() bool { return one.Degraded() == nil })
	a.Deny("namespaces")
	r.await("it is degraded", func() bool { return one.Degraded() != nil })
	a.Put(kubetest.NewNamespace("shop", inMesh()))
	setLabel(t, selectors, "other") // the last known labels count
	r.gone()
	a.Deny("")
	setLabel(t, selectors, "mesh")
	r.has("http=10.0.0.1:8080", "http=10.0.0.2:8080")
	setLabel(t, selectors, "")
	r.await("nothing is wrong without selectors", func() bool { return one.Degraded() == nil })
}

// TestNamespacesRecalled: a server that starts without the right to Namespaces goes by their last
// labels, and one that starts without the cluster serves what was saved.
func TestNamespacesRecalled(t *testing.T) {
	t.Parallel()
	a, _, _, _ := shop(t)
	a.Put(kubetest.NewNamespace("shop", inMesh()))
	memory := newRig(t, kube.Options{}).saved(a)
	a.Deny("namespaces")
	var asked atomic.Int32
	recall := func(labels map[string]string) func(*cluster.Options) {
		return func(o *cluster.Options) {
			o.Selectors = labelled(t, "mesh")
			o.RecallNamespaces = func(_ context.Context, cluster string) (map[string]*selection.Namespace, error) {
				if asked.Add(1) == 1 {
					return nil, errors.New("the store is away")
				}
				return map[string]*selection.Namespace{"shop": {Labels: labels}}, nil
			}
		}
	}
	without, with := newRig(t, kube.Options{}), newRig(t, kube.Options{})
	without.selecting(a, recall(nil))
	without.gone()
	with.selecting(a, recall(inMesh()))
	with.has("http=10.0.0.1:8080", "http=10.0.0.2:8080")

	a.Deny("")
	a.GoAway(true)
	third := newRig(t, kube.Options{Memory: memory, Patience: time.Millisecond})
	third.selecting(a, func(o *cluster.Options) { o.Selectors = labelled(t, "other") })
	third.has("http=10.0.0.1:8080", "http=10.0.0.2:8080") // it was saved, and no label is known
	a.GoAway(false)
	third.gone()
}

// TestOneListOfNamespaces: the users of a connection share one list of Namespaces. When the user that
// follows them ends, another does.
func TestOneListOfNamespaces(t *testing.T) {
	t.Parallel()
	a := kubetest.New(t)
	a.Put(kubetest.NewNamespace("shop", nil))
	r, selectors := newRig(t, kube.Options{}), labelled(t, "mesh")
	connection := a.Connect("east", func(o *cluster.Options) { o.Selectors = selectors })
	var stops []func()
	has := [3]*atomic.Bool{{}, {}, {}}
	for i := range has {
		user := connection.Share(cluster.User{})
		stops = append(stops, r.background(func(ctx context.Context) error {
			return user.FollowSelection(ctx, func(now selection.Selection) { has[i].Store(now.Has("shop")) })
		}))
	}
	all := func(want bool) {
		t.Helper()
		r.await("all users know", func() bool {
			return !slices.ContainsFunc(has[len(has)-len(stops):], func(b *atomic.Bool) bool { return b.Load() != want })
		})
	}
	for want := true; len(stops) > 0; want = !want {
		labels := inMesh()
		if !want {
			labels = nil
		}
		a.Put(kubetest.NewNamespace("shop", labels))
		all(want)
		stops[0]()
		stops = stops[1:]
	}
}

// TestNamespacesOfAnotherConnection: after Reconnect the namespaces of the other cluster say what counts,
// also of what did not count before.
func TestNamespacesOfAnotherConnection(t *testing.T) {
	t.Parallel()
	a, _, _, _ := shop(t)
	a.Put(kubetest.NewNamespace("shop", inMesh()))
	r, selectors := newRig(t, kube.Options{}), labelled(t, "mesh")
	by := func(o *cluster.Options) { o.Selectors = selectors }
	one := r.clusters.Remote(a.Connect("east", by), "first")
	r.background(one.Run)
	r.has("http=10.0.0.1:8080", "http=10.0.0.2:8080")

	other := kubetest.New(t)
	p := kubetest.NewPod("shop", "web-3", "10.0.0.3", map[string]string{"app": "web"})
	other.Put(kubetest.NewNamespace("shop", nil), p, kubetest.NewSlice("shop", "web", 8080, kubetest.EndpointOf(p)), kubetest.NewService("shop", "web", nil))
	one.Reconnect(other.Connect("east", by), "second")
	r.gone()
	one.Reconnect(a.Connect("east", by), "third")
	r.has("http=10.0.0.1:8080", "http=10.0.0.2:8080")
	other.Put(kubetest.NewNamespace("shop", inMesh()))
	one.Reconnect(other.Connect("east", by), "fourth")
	r.has("http=10.0.0.3:8080")
}

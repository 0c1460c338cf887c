// Package clientgo has client-go discover, map and follow the config API. It stands apart
// because the typed packages of Kubernetes behind client-go's discovery and informer
// factories take minutes to compile, and `make test` needs them for nothing else.
package clientgo

import (
	"context"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	clientrest "k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/cache"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/resttest"
	"github.com/portolan-mesh/portolan/storage/schema/schematest"
)

var (
	entries = runtimeschema.GroupVersionResource{Group: "networking.istio.io", Version: "v1", Resource: "serviceentries"}
	notes   = runtimeschema.GroupVersionResource{Version: "v1", Resource: "notes"}
)

// clients returns client-go's clients for what is there, and for objects.
func clients(t *testing.T, s *resttest.Server) (*discovery.DiscoveryClient, *dynamic.DynamicClient) {
	t.Helper()
	c := &clientrest.Config{Host: s.URL, Transport: s.HTTP.Transport}
	found, err := discovery.NewDiscoveryClientForConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := dynamic.NewForConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	return found, objects
}

// object makes an object of the namespace shop.
func object(apiVersion, kind, name string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"name": name, "namespace": "shop"}, "spec": spec,
	}}
}

func serviceEntry(name string) *unstructured.Unstructured {
	return object("networking.istio.io/v1", "ServiceEntry", name, map[string]any{
		"hosts": []any{name + ".shop"}, "location": "MESH_INTERNAL", "resolution": "STATIC",
		"ports":     []any{map[string]any{"number": int64(80), "name": "http", "protocol": "HTTP"}},
		"endpoints": []any{map[string]any{"address": "10.0.0.1"}},
	})
}

func TestClientGoDiscovers(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, nil)
	d, _ := clients(t, s)
	groups, resources, err := d.ServerGroupsAndResources()
	versions := 0
	for _, group := range groups {
		versions += len(group.Versions)
	}
	if err != nil || versions < 10 || len(resources) != versions {
		t.Errorf("%d lists of resources for %d versions of groups, %v", len(resources), versions, err)
	}
	if v, err := d.ServerVersion(); err != nil || v.GitVersion != "v1.2.3" {
		t.Errorf("%v, %v", v, err)
	}
	deferred := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(d))
	mapper := restmapper.NewShortcutExpander(deferred, d, nil)
	if got, err := mapper.ResourceFor(runtimeschema.GroupVersionResource{Resource: "se"}); err != nil || got != entries {
		t.Errorf("se is %v, %v", got, err)
	}
}

func TestClientGoInformer(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, nil)
	_, all := clients(t, s)
	shop := all.Resource(entries).Namespace("shop")
	create := func(name string) *unstructured.Unstructured {
		t.Helper()
		made, err := shop.Create(t.Context(), serviceEntry(name), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	change := create("before")
	events := make(chan string, 16)
	factory := dynamicinformer.NewDynamicSharedInformerFactory(all, 0)
	informer := factory.ForResource(entries).Informer()
	name := func(o any) string {
		key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(o)
		if err != nil {
			t.Error(err)
		}
		return key
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { events <- "add " + name(o) },
		UpdateFunc: func(_, o any) { events <- "update " + name(o) },
		DeleteFunc: func(o any) { events <- "delete " + name(o) },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	defer cancel()
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		t.Fatal("the informer does not sync")
	}
	create("after")
	change.SetLabels(map[string]string{"a": "b"})
	if _, err := shop.Update(ctx, change, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := shop.Delete(ctx, "after", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	var got []string
	for len(got) < 4 {
		select {
		case e := <-events:
			got = append(got, e)
		case <-ctx.Done():
			t.Fatalf("only %q", got)
		}
	}
	if want := []string{"add shop/before", "add shop/after", "update shop/before", "delete shop/after"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// TestClientGoFindsTheCoreGroup: the description is like that of Kubernetes' own.
func TestClientGoFindsTheCoreGroup(t *testing.T) {
	t.Parallel()
	s := resttest.StartKinds(t, schematest.Kinds())
	d, objects := clients(t, s)
	core, err := d.ServerResourcesForGroupVersion("v1")
	if err != nil || core.GroupVersion != "v1" || len(core.APIResources) != 3 || core.APIResources[1].Kind != "Note" || !core.APIResources[1].Namespaced {
		t.Errorf("%+v, %v", core, err)
	}
	groups, lists, err := d.ServerGroupsAndResources()
	if err != nil || groups[0].Name != "" || groups[0].PreferredVersion.GroupVersion != "v1" || len(lists) < len(groups) {
		t.Errorf("%+v, %d lists, %v", groups, len(lists), err)
	}
	if !slices.ContainsFunc(groups, func(g *metav1.APIGroup) bool { return g.Name == "portolan.io" }) {
		t.Errorf("no group portolan.io in %+v", groups)
	}
	shop := objects.Resource(notes).Namespace("shop")
	watched, err := shop.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watched.Stop()
	if _, err := shop.Create(t.Context(), object("v1", "Note", "hello", map[string]any{"title": "Tea"}), metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
	if event := <-watched.ResultChan(); event.Type != watch.Added {
		t.Errorf("%+v", event)
	}
}

package rest_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	clientrest "k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/cache"

	"github.com/portolan-mesh/portolan/cache/rest/resttest"
)

var gvr = runtimeschema.GroupVersionResource{Group: "networking.istio.io", Version: "v1", Resource: "serviceentries"}

func clientGo(t *testing.T, s *resttest.Server) (*clientrest.Config, dynamic.ResourceInterface) {
	t.Helper()
	c := &clientrest.Config{Host: s.URL, Transport: s.HTTP.Transport}
	d, err := dynamic.NewForConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	return c, d.Resource(gvr).Namespace("shop")
}

func unstructuredEntry(t *testing.T, name string) *unstructured.Unstructured {
	t.Helper()
	return parse[*unstructured.Unstructured](t, entry(name, ""))
}

func TestClientGoDiscovers(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, nil)
	c, _ := clientGo(t, s)
	d, err := discovery.NewDiscoveryClientForConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	_, resources, err := d.ServerGroupsAndResources()
	if err != nil || len(resources) != 10 {
		t.Errorf("%d lists of resources, %v", len(resources), err)
	}
	if v, err := d.ServerVersion(); err != nil || v.GitVersion != "v1.2.3" {
		t.Errorf("%v, %v", v, err)
	}
	deferred := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(d))
	mapper := restmapper.NewShortcutExpander(deferred, d, nil)
	if got, err := mapper.ResourceFor(runtimeschema.GroupVersionResource{Resource: "se"}); err != nil || got != gvr {
		t.Errorf("se is %v, %v", got, err)
	}
}

func TestClientGoReadsAndWrites(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, nil)
	_, shop := clientGo(t, s)
	ctx := t.Context()
	made, err := shop.Create(ctx, unstructuredEntry(t, "a"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := shop.Create(ctx, unstructuredEntry(t, "a"), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("created twice: %v", err)
	}
	change := made.DeepCopy()
	change.SetLabels(map[string]string{"app": "web"})
	changed, err := shop.Update(ctx, change, metav1.UpdateOptions{})
	if err != nil || changed.GetUID() != made.GetUID() {
		t.Fatal(err)
	}
	change.SetLabels(nil)
	if _, err := shop.Update(ctx, change, metav1.UpdateOptions{}); !apierrors.IsConflict(err) || !strings.Contains(err.Error(), changed.GetResourceVersion()) {
		t.Errorf("stale update: %v", err)
	}
	list, err := shop.List(ctx, metav1.ListOptions{LabelSelector: "app=web", Limit: 1})
	if err != nil || len(list.Items) != 1 {
		t.Errorf("%v, %v", list, err)
	}
	uid := made.GetUID()
	err = shop.Delete(ctx, "a", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if err != nil {
		t.Error(err)
	}
	if _, err := shop.Get(ctx, "a", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("after its deletion: %v", err)
	}
	bad := unstructuredEntry(t, "b")
	unstructured.RemoveNestedField(bad.Object, "spec", "hosts")
	if _, err := shop.Create(ctx, bad, metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("invalid: %v", err)
	}
	// client-go itself retries ten times, as the answer tells it to.
	soon, stop := context.WithTimeout(ctx, 4*time.Second)
	defer stop()
	if _, err := shop.Watch(soon, metav1.ListOptions{ResourceVersion: "99"}); err == nil {
		t.Error("a watch of the future began")
	}
}

func TestClientGoInformer(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, nil)
	c, shop := clientGo(t, s)
	all, err := dynamic.NewForConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	create(t, s, "before", "")
	events := make(chan string, 16)
	factory := dynamicinformer.NewDynamicSharedInformerFactory(all, 0)
	informer := factory.ForResource(gvr).Informer()
	name := func(o any) string {
		key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(o)
		if err != nil {
			t.Error(err)
		}
		return key
	}
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
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
	create(t, s, "after", "")
	change := parse[*unstructured.Unstructured](t, entry("before", `,"labels":{"a":"b"}`))
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

package rest_test

import (
	"context"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	clientrest "k8s.io/client-go/rest"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/resttest"
)

var gvr = runtimeschema.GroupVersionResource{Group: "networking.istio.io", Version: "v1", Resource: "serviceentries"}

// clientGo returns client-go's client for the ServiceEntries of the namespace shop.
func clientGo(t *testing.T, s *resttest.Server) dynamic.ResourceInterface {
	t.Helper()
	d, err := dynamic.NewForConfig(&clientrest.Config{Host: s.URL, Transport: s.HTTP.Transport})
	if err != nil {
		t.Fatal(err)
	}
	return d.Resource(gvr).Namespace("shop")
}

func unstructuredEntry(t *testing.T, name string) *unstructured.Unstructured {
	t.Helper()
	return parse[*unstructured.Unstructured](t, entry(name, ""))
}

func TestClientGoReadsAndWrites(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, nil)
	shop := clientGo(t, s)
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

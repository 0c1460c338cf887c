package clients

import (
	"encoding/json"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
)

// terraform is what kubernetes_manifest of Terraform's provider calls, in its order: the provider
// is no Go module that can be fetched.
type terraform struct {
	t      *testing.T
	found  discovery.DiscoveryInterface
	mapper meta.RESTMapper
	client dynamic.Interface
}

func newTerraform(t *testing.T) *terraform {
	t.Helper()
	c := config(t)
	found, err := discovery.NewDiscoveryClientForConfig(c)
	must(t, err)
	groups, err := restmapper.GetAPIGroupResources(found)
	must(t, err)
	client, err := dynamic.NewForConfig(c)
	must(t, err)
	return &terraform{t: t, found: found, mapper: restmapper.NewDiscoveryRESTMapper(groups), client: client}
}

// definition is the name of the type of a kind in OpenAPI v2, by its group, version and kind.
func (f *terraform) definition(kind schema.GroupVersionKind) string {
	f.t.Helper()
	text, err := f.found.RESTClient().Get().AbsPath("/openapi/v2").SetHeader("Accept", "application/json").Do(f.t.Context()).Raw()
	must(f.t, err)
	var document struct {
		Definitions map[string]struct {
			Properties map[string]any
			Kinds      []struct{ Group, Version, Kind string } `json:"x-kubernetes-group-version-kind"`
		}
	}
	must(f.t, json.Unmarshal(text, &document))
	if len(document.Definitions["io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"].Properties) == 0 {
		f.t.Error("OpenAPI v2 has no ObjectMeta")
	}
	for name, definition := range document.Definitions {
		for _, of := range definition.Kinds {
			if of.Group == kind.Group && of.Version == kind.Version && of.Kind == kind.Kind && definition.Properties["spec"] != nil {
				return name
			}
		}
	}
	return ""
}

// expectNoDefinitions looks for kinds among CustomResourceDefinitions, as the provider does before
// it looks into OpenAPI: their kind is known, and there are none.
func (f *terraform) expectNoDefinitions() {
	f.t.Helper()
	mappings, err := f.mapper.RESTMappings(schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"})
	must(f.t, err)
	for _, mapping := range mappings {
		list, err := f.client.Resource(mapping.Resource).List(f.t.Context(), metav1.ListOptions{})
		must(f.t, err)
		if len(list.Items) != 0 || mapping.Scope.Name() != meta.RESTScopeNameRoot {
			f.t.Errorf("%v of scope %s", list.Items, mapping.Scope.Name())
		}
	}
}

// TestTerraform: a plan, an apply, a refresh, a change and a destroy, as kubernetes_manifest does
// them, of an object with fields of each type.
func TestTerraform(t *testing.T) {
	t.Parallel()
	f := newTerraform(t)
	f.expectNoDefinitions()
	for _, one := range objects(t, fluxSource, "terraform")[2:] {
		kind := one.GroupVersionKind()
		mapping, err := f.mapper.RESTMapping(kind.GroupKind(), kind.Version)
		must(t, err)
		if f.definition(kind) == "" {
			t.Errorf("OpenAPI v2 has no type of %s", kind)
		}
		c := f.client.Resource(mapping.Resource).Namespace(one.GetNamespace())
		if _, err := c.Get(t.Context(), one.GetName(), metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Fatalf("before: %v", err)
		}
		patch := func(o *unstructured.Unstructured, dry ...string) *unstructured.Unstructured {
			t.Helper()
			text, err := json.Marshal(o)
			must(t, err)
			out, err := c.Patch(t.Context(), o.GetName(), types.ApplyPatchType, text, metav1.PatchOptions{FieldManager: "Terraform", DryRun: dry})
			must(t, err)
			return out
		}
		planned := patch(one, metav1.DryRunAll)
		applied := patch(one)
		read, err := c.Get(t.Context(), one.GetName(), metav1.GetOptions{})
		must(t, err)
		for what, got := range map[string]*unstructured.Unstructured{"planned": planned, "applied": applied, "read": read} {
			if got, want := spec(t, got), spec(t, one); got != want {
				t.Errorf("%s is %s as\n%s, not\n%s", kind.Kind, what, got, want)
			}
		}
		labelled := one.DeepCopy()
		labelled.SetLabels(map[string]string{"by": "terraform"})
		if got := patch(labelled, metav1.DryRunAll); got.GetLabels()["by"] != "terraform" || got.GetResourceVersion() == "" {
			t.Errorf("the plan of a change: %v", got.GetLabels())
		}
		must(t, c.Delete(t.Context(), one.GetName(), metav1.DeleteOptions{}))
		if _, err := c.Get(t.Context(), one.GetName(), metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("after: %v", err)
		}
	}
}

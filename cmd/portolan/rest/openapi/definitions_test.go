package openapi

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/timestamppb"
	metav1alpha1 "istio.io/api/meta/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/schema/ingressstatus"
)

// TestDefinitionsConvertObjects converts an example of each kind, in each version, with
// metadata and status, to a typed value and back. A field that is in no definition is
// refused.
func TestDefinitionsConvertObjects(t *testing.T) {
	t.Parallel()
	converter, err := managedfields.NewTypeConverter(Definitions(schema.Pilot()), false)
	if err != nil {
		t.Fatal(err)
	}
	for _, example := range examples(t) {
		k := schema.Pilot().Kind(example.GroupVersionKind)
		object := *example
		object.Labels, object.Annotations = map[string]string{"app": "a"}, map[string]string{"note": "b"}
		object.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Secret", Name: "o", UID: "u", Controller: new(true)}}
		object.ResourceVersion, object.Generation, object.UID = "7", 3, "uid"
		conditions := []*metav1alpha1.IstioCondition{
			{Type: "Accepted", Status: "True", LastTransitionTime: timestamppb.Now(), ObservedGeneration: 3},
			{Type: "Distributed", Status: "False", Reason: "Waiting", Message: "for one", LastProbeTime: timestamppb.Now()},
		}
		switch status := schema.NewStatus(k.GroupVersionKind).(type) {
		case *networking.ServiceEntryStatus:
			object.Status = status
			status.Conditions, status.ObservedGeneration = conditions, 3
			status.Addresses = []*networking.ServiceEntryAddress{{Value: "240.240.0.1", Host: "a.example"}}
		case *metav1alpha1.IstioStatus:
			object.Status = status
			status.Conditions, status.ObservedGeneration = conditions, 3
		case *ingressstatus.IngressStatus:
			object.Status = status
			status.Conditions, status.ObservedGeneration, status.LoadBalancer = conditions, 3, ingressstatus.At([]string{"10.0.0.1", "a.example"})
		}
		for _, version := range k.Versions {
			whole := document(t, &object, version)
			typed, err := converter.ObjectToTyped(&unstructured.Unstructured{Object: whole})
			if err != nil {
				t.Errorf("%s as %s: %v", object.Key(), version, err)
				continue
			}
			back, err := converter.TypedToObject(typed)
			if err != nil {
				t.Errorf("%s as %s: %v", object.Key(), version, err)
				continue
			}
			if diff := cmp.Diff(document(t, &object, version), back.(*unstructured.Unstructured).Object); diff != "" {
				t.Errorf("%s as %s: %s", object.Key(), version, diff)
			}
			whole["kettle"] = true
			if path := k.Codec.Path(); path != "" {
				delete(whole, "kettle")
				whole[path].(map[string]any)["kettle"] = true
			}
			if _, err := converter.ObjectToTyped(&unstructured.Unstructured{Object: whole}); err == nil || !strings.Contains(err.Error(), "kettle") {
				t.Errorf("%s as %s with an unknown field: %v", object.Key(), version, err)
			}
		}
	}
}

// TestDefinitionsOfFields shows each sort of field once.
func TestDefinitionsOfFields(t *testing.T) {
	t.Parallel()
	definitions := Definitions(schema.Pilot())
	for at, want := range map[string]string{
		"io.istio.networking.v1alpha3.VirtualService spec":                                                `{"$ref":"#/definitions/io.istio.api.networking.v1alpha3.VirtualService"}`,
		"io.portolan.v1.Role spec":                                                                        `{"$ref":"#/definitions/com.github.portolan-mesh.portolan.storage.access.Role"}`,
		"io.k8s.api.core.v1.Secret data":                                                                  `{"type":"object","additionalProperties":{"type":"string","format":"byte"}}`,
		"io.k8s.api.core.v1.Secret immutable":                                                             `{"type":"boolean"}`,
		"io.k8s.api.core.v1.SecretList items":                                                             `{"type":"array","items":{"$ref":"#/definitions/io.k8s.api.core.v1.Secret"}}`,
		"io.istio.api.networking.v1alpha3.HTTPRoute timeout":                                              `{"type":"string"}`,
		"io.istio.api.networking.v1alpha3.HTTPRoute route":                                                `{"type":"array","items":{"$ref":"#/definitions/io.istio.api.networking.v1alpha3.HTTPRouteDestination"}}`,
		"io.istio.api.networking.v1alpha3.HTTPRouteDestination weight":                                    `{"type":"integer","format":"int32"}`,
		"io.istio.api.networking.v1alpha3.ServicePort number":                                             `{"type":"integer","format":"int64","maximum":4294967295,"minimum":0}`,
		"io.istio.api.networking.v1alpha3.ServiceEntry location":                                          `{"type":"string","enum":["MESH_EXTERNAL","MESH_INTERNAL"]}`,
		"io.istio.api.networking.v1alpha3.WorkloadEntry ports":                                            `{"type":"object","additionalProperties":{"type":"integer","format":"int64","maximum":4294967295,"minimum":0}}`,
		"io.istio.api.networking.v1alpha3.LoadBalancerSettings.ConsistentHashLB.RingHash minimumRingSize": `{"x-kubernetes-int-or-string":true}`,
		"io.istio.api.networking.v1alpha3.TrafficPolicy.RetryBudget percent":                              `{"type":"number","nullable":true,"format":"double"}`,
		"io.istio.api.networking.v1alpha3.EnvoyFilter.Patch value":                                        `{"type":"object","x-kubernetes-preserve-unknown-fields":true}`,
		"io.istio.api.networking.v1alpha3.HTTPBody bytes":                                                 `{"type":"string","format":"byte"}`,
		"io.istio.api.meta.v1alpha1.IstioStatus conditions":                                               `{"type":"array","items":{"$ref":"#/definitions/io.istio.api.meta.v1alpha1.IstioCondition"},"x-kubernetes-list-map-keys":["type"],"x-kubernetes-list-type":"map"}`,
		"io.istio.api.meta.v1alpha1.IstioStatus observedGeneration":                                       `{"type":"integer","format":"int64"}`,
		"io.istio.api.meta.v1alpha1.IstioCondition lastProbeTime":                                         `{"type":"string","format":"date-time"}`,
		"io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta finalizers":                                      `{"type":"array","items":{"type":"string"},"x-kubernetes-list-type":"set","x-kubernetes-patch-strategy":"merge"}`,
		"io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta ownerReferences":                                 `{"type":"array","items":{"$ref":"#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.OwnerReference"},"x-kubernetes-list-map-keys":["uid"],"x-kubernetes-list-type":"map","x-kubernetes-patch-merge-key":"uid","x-kubernetes-patch-strategy":"merge"}`,
		"io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta creationTimestamp":                               `{"type":"string","format":"date-time"}`,
		"io.k8s.apimachinery.pkg.apis.meta.v1.ManagedFieldsEntry fieldsV1":                                `{"type":"object","x-kubernetes-preserve-unknown-fields":true}`,
		"com.github.portolan-mesh.portolan.storage.access.RevokedIdentity before":                         `{"type":"string","format":"date-time"}`,
		"com.github.portolan-mesh.portolan.storage.access.JoinToken uses":                                 `{"type":"integer","format":"int64"}`,
		"com.github.portolan-mesh.portolan.storage.keyset.Fetched url":                                    `{"type":"string"}`,
	} {
		name, field, _ := strings.Cut(at, " ")
		definition := definitions[name]
		if definition == nil {
			t.Errorf("no definition %s", name)
			continue
		}
		s, ok := definition.Properties[field]
		s.Description = ""
		if text, err := s.MarshalJSON(); !ok || err != nil || string(text) != want {
			t.Errorf("%s is %v %s\nwant %s", at, err, text, want)
		}
	}
}

// TestDefinitionsReferToDefinitions: what a definition refers to is there, and each kind has
// one definition in each version.
func TestDefinitionsReferToDefinitions(t *testing.T) {
	t.Parallel()
	definitions := Definitions(schema.Pilot())
	var check func(name string, s spec.Schema)
	check = func(name string, s spec.Schema) {
		if ref, ok := strings.CutPrefix(s.Ref.String(), definitionPrefix); ok && definitions[ref] == nil {
			t.Errorf("%s refers to %s, which is not there", name, ref)
		}
		if s.Items != nil {
			check(name, *s.Items.Schema)
		}
		if s.AdditionalProperties != nil {
			check(name, *s.AdditionalProperties.Schema)
		}
		for field, inner := range s.Properties {
			check(name+"."+field, inner)
		}
	}
	for name, s := range definitions {
		check(name, *s)
	}
	for _, k := range schema.Pilot().All() {
		for _, version := range k.Versions {
			if s := definitions[kindName(k, version)]; s == nil || len(s.Properties) < 4 {
				t.Errorf("no definition of %s in version %s", k.Kind, version)
			}
		}
	}
}

// TestDescriptionsNameFields refuses a description of something that is not there, and
// demands one of each kind and each field of Portolan's own kinds.
func TestDescriptionsNameFields(t *testing.T) {
	t.Parallel()
	defined := define(schema.Pilot())
	for name, texts := range described() {
		fields, ok := defined.named[name]
		if name == anyKind {
			fields, ok = []string{"apiVersion", "kind", "metadata", "spec", "status"}, true
		}
		if !ok {
			t.Errorf("descriptions.yaml describes %s, and there is no such type", name)
		}
		for field, text := range texts {
			if field != "" && !slices.Contains(fields, field) {
				t.Errorf("descriptions.yaml describes the field %s of %s, and it has none", field, name)
			}
			if !strings.HasSuffix(strings.TrimSpace(text), ".") {
				t.Errorf("descriptions.yaml: the text of %s %s is no sentence", name, field)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(defined.definitions)) {
		s, table := defined.definitions[name], defined.tables[name]
		if own := strings.HasPrefix(name, "com.github.portolan-mesh"); own {
			for field, inner := range s.Properties {
				if inner.Description == "" {
					t.Errorf("descriptions.yaml lacks the field %s of %s", field, table)
				}
			}
		}
	}
	for _, k := range schema.Pilot().All() {
		if described().text(k.Kind, "") == "" {
			t.Errorf("descriptions.yaml lacks the kind %s", k.Kind)
		}
	}
}

// TestDefinitionsOfOtherSets: a definition is derived for kinds that are not of the mesh.
func TestDefinitionsOfOtherSets(t *testing.T) {
	t.Parallel()
	type tree struct {
		Name     string           `json:"name,omitempty"`
		Branches []*tree          `json:"branches,omitempty"`
		Any      any              `json:"any,omitempty"`
		Parts    map[string]*tree `json:"parts,omitempty"`
	}
	k := &schema.Schema{
		GroupVersionKind: config.GroupVersionKind{Group: "wood.example", Version: "v1", Kind: "Tree"}, Versions: []string{"v1"},
		Plural: "trees", Singular: "tree", Codec: config.JSON[tree](),
	}
	definitions := Definitions(schema.NewSet(k))
	converter, err := managedfields.NewTypeConverter(definitions, false)
	if err != nil {
		t.Fatal(err)
	}
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "wood.example/v1", "kind": "Tree", "metadata": map[string]any{"name": "oak"},
		"spec": map[string]any{
			"branches": []any{map[string]any{"name": "a", "branches": []any{map[string]any{"name": "b"}}}},
			"parts":    map[string]any{"root": map[string]any{"any": []any{"x", int64(1), map[string]any{}}}},
		},
	}}
	if _, err := converter.ObjectToTyped(object); err != nil {
		t.Error(err)
	}
	if _, ok := definitions["example.wood.v1.Tree"]; !ok {
		t.Errorf("the definitions are %v", slices.Sorted(maps.Keys(definitions)))
	}
}

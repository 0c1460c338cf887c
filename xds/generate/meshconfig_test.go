package generate_test

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/longtest"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestEveryServedFieldOfMeshConfigHasAnEffect: each field that the example sets changes what some
// proxy gets, taken away from the example or standing alone.
func TestEveryServedFieldOfMeshConfigHasAnEffect(t *testing.T) {
	longtest.OneGoroutine(t)
	t.Parallel()
	known := map[string]string{"MeshConfig.meshMTLS.minProtocolVersion": "the version of the example is the default"}
	w := xdstest.NewWorld(t)
	for _, o := range exampleObjects(t) {
		if o.Kind != schema.Telemetry.Kind || o.Namespace != "istio-system" { // it outranks the access log of the mesh
			w.Put(o)
		}
	}
	w.Apply(ingresses)
	get := func(m *meshv1alpha1.MeshConfig) string {
		w.Put(&config.Config{Meta: config.Meta{GroupVersionKind: schema.MeshConfig, Namespace: "istio-system", Name: schema.MeshConfigName}, Spec: m})
		return strings.Join(slices.Collect(fingerprints(t, w)), "")
	}
	example := meshConfigExample(t)
	example.DiscoverySelectors = nil // they choose what comes from clusters, and no cluster is here: see TestNamespacesThatCount
	full, none := get(proto.CloneOf(example)), get(&meshv1alpha1.MeshConfig{})
	effective := map[string]bool{}
	eachField(example.ProtoReflect(), "MeshConfig", func(path string, without func() (again func())) {
		if effective[path] {
			return
		}
		alone := proto.CloneOf(example)
		keep(alone.ProtoReflect(), strings.Split(path, ".")[1:])
		effective[path] = get(alone) != none
		if !effective[path] {
			again := without()
			effective[path] = get(proto.CloneOf(example)) != full
			again()
		}
	})
	for _, path := range slices.Sorted(maps.Keys(effective)) {
		if _, excused := known[path]; effective[path] == excused {
			t.Errorf("%s: it has an effect: %t", path, effective[path])
		}
	}
}

// ingresses are Ingresses of the usual class, of another, and of none.
const ingresses = `
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: usual, namespace: shop, annotations: {kubernetes.io/ingress.class: istio}}
spec: {rules: [{host: usual.example, http: {paths: [{pathType: Prefix, path: /, backend: {service: {name: web, port: {number: 80}}}}]}}]}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: edge, namespace: shop, annotations: {kubernetes.io/ingress.class: edge}}
spec: {rules: [{host: edge.example, http: {paths: [{pathType: Prefix, path: /, backend: {service: {name: web, port: {number: 80}}}}]}}]}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: none, namespace: shop}
spec: {rules: [{host: none.example, http: {paths: [{pathType: Prefix, path: /, backend: {service: {name: web, port: {number: 80}}}}]}}]}
`

// keep clears all fields but the one at a path of names, whose lists keep their elements.
func keep(m protoreflect.Message, path []string) {
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.JSONName() != strings.TrimSuffix(path[0], "[]"):
			m.Clear(field)
		case len(path) > 1 && !field.IsList():
			keep(value.Message(), path[1:])
		}
		return true
	})
}

func meshConfigExample(t *testing.T) *meshv1alpha1.MeshConfig {
	t.Helper()
	const file = "../../storage/schema/testdata/served/mesh.yaml"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	documents, err := config.Decode(file, text, schema.Pilot().Type)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range documents {
		if m, ok := d.Config.Spec.(*meshv1alpha1.MeshConfig); ok {
			return m
		}
	}
	t.Fatal("no example of a MeshConfig")
	return nil
}

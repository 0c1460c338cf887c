package rest_test

import (
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/openapi3"
	clientrest "k8s.io/client-go/rest"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/openapi"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/resttest"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// TestClientGoReadsOpenAPI: client-go reads both versions, in protobuf and in JSON.
func TestClientGoReadsOpenAPI(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, nil)
	client, err := discovery.NewDiscoveryClientForConfig(&clientrest.Config{Host: s.URL, Transport: s.HTTP.Transport})
	if err != nil {
		t.Fatal(err)
	}
	v2, err := client.OpenAPISchema()
	if err != nil || len(v2.GetDefinitions().GetAdditionalProperties()) < 100 || len(v2.GetPaths().GetPath()) < 50 {
		t.Errorf("version 2: %v, %d definitions", err, len(v2.GetDefinitions().GetAdditionalProperties()))
	}
	root := openapi3.NewRoot(client.OpenAPIV3())
	for _, k := range schema.Pilot().All() {
		for _, version := range k.Versions {
			document, err := root.GVSpec(runtimeschema.GroupVersion{Group: k.Group, Version: version})
			if err != nil || len(document.Components.Schemas) == 0 || len(document.Paths.Paths) == 0 {
				t.Errorf("%s in version %s: %v", k.Kind, version, err)
			}
		}
	}
}

// TestOpenAPIIsForWhoMayReadDiscovery: OpenAPI is behind the same guard and admission as
// the discovery.
func TestOpenAPIIsForWhoMayReadDiscovery(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, func(o *rest.Options) { o.Authenticator = users{} })
	for _, path := range []string{"/openapi/v2", "/openapi/v3", "/openapi/v3/apis/networking.istio.io/v1"} {
		if answer := s.Do(t, http.MethodGet, path, ""); answer.Code != http.StatusUnauthorized {
			t.Errorf("%s: %d %.100s", path, answer.Code, answer.Body)
		}
	}
}

// TestServedObjectsFitTheirDefinitions: what the server answers, with the status it adds,
// has the types of the definitions.
func TestServedObjectsFitTheirDefinitions(t *testing.T) {
	t.Parallel()
	converter, err := managedfields.NewTypeConverter(openapi.Definitions(schema.Pilot()), false)
	if err != nil {
		t.Fatal(err)
	}
	s := resttest.Start(t, 0, nil)
	create(t, s, "a", `,"labels":{"app":"a"}`)
	object := parse[*unstructured.Unstructured](t, s.Do(t, http.MethodGet, shopEntries+"/a", "").Body)
	if _, err := converter.ObjectToTyped(object); err != nil {
		t.Error(err)
	}
}

// TestFieldValidation: an unknown field is refused whatever is asked, and an unknown value
// of the parameter too. A read ignores it.
func TestFieldValidation(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, nil)
	create(t, s, "there", "")
	odd := strings.Replace(entry("odd", ""), `"spec":{`, `"spec":{"kettle":1,`, 1)
	for _, c := range []struct {
		method, path, body string
		code               int
		says               string
	}{
		{"POST", shopEntries, odd, 400, "spec.kettle"},
		{"POST", shopEntries + "?fieldValidation=Strict", odd, 400, "spec.kettle"},
		{"POST", shopEntries + "?fieldValidation=Warn", odd, 400, "spec.kettle"},
		{"POST", shopEntries + "?fieldValidation=Ignore", odd, 400, "spec.kettle"},
		{"POST", shopEntries + "?fieldValidation=strict", entry("b", ""), 400, "Ignore, Warn, Strict"},
		{"PUT", shopEntries + "/there?fieldValidation=none", entry("there", ""), 400, "Ignore, Warn, Strict"},
		{"GET", shopEntries + "/there?fieldValidation=none", "", 200, "there"},
		{"POST", shopEntries + "?fieldValidation=", entry("c", ""), 201, "c"},
		{"POST", shopEntries + "?fieldValidation=Warn", entry("d", ""), 201, "d"},
	} {
		if a := s.Do(t, c.method, c.path, c.body); a.Code != c.code || !strings.Contains(a.Body, c.says) {
			t.Errorf("%s %s: %d %s", c.method, c.path, a.Code, a.Body)
		}
	}
	if a := s.Do(t, "GET", shopEntries+"/b", ""); a.Code != 404 {
		t.Errorf("a refused request wrote: %d", a.Code)
	}
}

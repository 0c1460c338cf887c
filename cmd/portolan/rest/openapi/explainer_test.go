package openapi_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/openapi"
	"github.com/portolan-mesh/portolan/storage/schema"
)

func TestExplainerFindsFields(t *testing.T) {
	t.Parallel()
	e := openapi.NewExplainer(schema.Pilot())
	for path, want := range map[string]string{
		"vs":                               "VirtualService",
		"vs.metadata":                      "ObjectMeta",
		"vs.metadata.labels":               "map[string]string",
		"vs.spec":                          "VirtualService required",
		"vs.spec.http.route":               "[]HTTPRouteDestination",
		"vs.spec.http.route.weight":        "integer",
		"vs.spec.http.match.headers":       "map[string]StringMatch",
		"vs.spec.http.match.headers.exact": "string",
		"dr.spec.host":                     "string required",
		"dr.spec.trafficPolicy.loadBalancer.consistentHash.minimumRingSize": "integer",
		"ef.spec.configPatches.patch.value":                                 "object",
		"we.status.conditions.lastProbeTime":                                "string",
		"secrets.data":                                                      "map[string]string",
		"role.spec.rules.verbs":                                             "[]string required",
		"wasmplugin.spec.priority":                                          "integer",
	} {
		parts := strings.Split(path, ".")
		f, err := e.Find(schema.Pilot().Named(parts[0]), parts[1:]...)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		got := f.Type
		if f.Required {
			got += " required"
		}
		if got != want || len(parts) > 1 && f.Name != parts[len(parts)-1] {
			t.Errorf("%s is %s %s, want %s", path, f.Name, got, want)
		}
	}
	for path, want := range map[string]string{
		"vs.spec.htttp":               `virtualservice.spec has no field "htttp": did you mean http?`,
		"role.spec.kettle":            `role.spec has no field "kettle": it has rules`,
		"vs.spec.hosts.kettle":        `virtualservice.spec.hosts has no fields: it is of type []string`,
		"vs.spec.http.route.weight.x": `virtualservice.spec.http.route.weight has no fields: it is of type integer`,
	} {
		parts := strings.Split(path, ".")
		if f, err := e.Find(schema.Pilot().Named(parts[0]), parts[1:]...); err == nil || err.Error() != want {
			t.Errorf("%s: %+v %v\nwant %s", path, f, err, want)
		}
	}
}

// TestExplainerTellsOfFields: a field has what it means, what its type is, and its values.
func TestExplainerTellsOfFields(t *testing.T) {
	t.Parallel()
	e := openapi.NewExplainer(schema.Pilot())
	route, err := e.Find(schema.Pilot().Named("vs"), "spec", "http", "route")
	if err != nil || route.Description == "" || route.OfType == "" || route.Description == route.OfType {
		t.Errorf("%+v %v", route, err)
	}
	var names []string
	for _, f := range e.Fields(route) {
		names = append(names, f.Name)
	}
	if !slices.Equal(names, []string{"destination", "headers", "weight"}) {
		t.Errorf("the fields are %v", names)
	}
	location, err := e.Find(schema.Pilot().Named("se"), "spec", "location")
	if err != nil || !slices.Equal(location.Enum, []string{"MESH_EXTERNAL", "MESH_INTERNAL"}) {
		t.Errorf("%+v %v", location, err)
	}
}

// TestExplainerSchemaStandsAlone: it has all that it refers to, and nothing else.
func TestExplainerSchemaStandsAlone(t *testing.T) {
	t.Parallel()
	e := openapi.NewExplainer(schema.Pilot())
	route, err := e.Find(schema.Pilot().Named("vs"), "spec", "http", "route")
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(new(e.Schema(route)))
	if err != nil {
		t.Fatal(err)
	}
	var out struct {
		Type        string         `json:"type"`
		Definitions map[string]any `json:"definitions"`
	}
	if n := strings.Count(string(text), `"additionalProperties":false`); n != 5 {
		t.Errorf("%d types permit no unknown fields", n)
	}
	if err := json.Unmarshal(text, &out); err != nil || out.Type != "array" {
		t.Fatalf("%v: %.200s", err, text)
	}
	for _, ref := range strings.Split(string(text), `"$ref":"#/definitions/`)[1:] {
		name, _, _ := strings.Cut(ref, `"`)
		if out.Definitions[name] == nil {
			t.Errorf("the schema lacks %s", name)
		}
	}
	if n := len(out.Definitions); n != 5 { // the destination, its port, two of headers, and the element
		t.Errorf("the schema has %d definitions", n)
	}
}

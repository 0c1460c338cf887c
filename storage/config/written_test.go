package config_test

import (
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

func TestWhatTheUserWroteIsKept(t *testing.T) {
	t.Parallel()
	document := func(kind, spec string) string {
		version := "networking.istio.io/v1"
		if kind == "Role" {
			version = "portolan.io/v1"
		}
		return `{"apiVersion":"` + version + `","kind":"` + kind + `","metadata":{"name":"a","namespace":"shop"},"spec":` + spec + `}`
	}
	const route = `{"destination":{"host":"a"}}`
	for name, c := range map[string]struct {
		kind, spec string
		want       string // what AsWritten returns
	}{
		"canonical":               {"ServiceEntry", `{"hosts":["a.b"],"resolution":"STATIC"}`, ""},
		"in another order":        {"ServiceEntry", `{ "resolution": "STATIC",  "hosts": ["a.b"] }`, ""},
		"a default":               {"ServiceEntry", `{"location":"MESH_EXTERNAL","hosts":["a.b"]}`, `{"hosts":["a.b"],"location":"MESH_EXTERNAL"}`},
		"a zero in a list":        {"VirtualService", `{"http":[{"route":[{"destination":{"host":"a"},"weight":0},` + route + `]}]}`, `{"http":[{"route":[{"destination":{"host":"a"},"weight":0},{"destination":{"host":"a"}}]}]}`},
		"false and empty":         {"DestinationRule", `{"host":"a","workloadSelector":{"matchLabels":{}},"exportTo":[]}`, `{"exportTo":[],"host":"a","workloadSelector":{"matchLabels":{}}}`},
		"a null":                  {"ServiceEntry", `{"hosts":["a.b"],"location":null}`, ""},
		"a duration":              {"VirtualService", `{"http":[{"timeout":"1m","route":[` + route + `]}]}`, `{"http":[{"route":[` + route + `],"timeout":"1m"}]}`},
		"another name of a field": {"ServiceEntry", `{"hosts":["a.b"],"export_to":["."]}`, ""},
		"that and a default":      {"ServiceEntry", `{"hosts":["a.b"],"export_to":["."],"location":"MESH_EXTERNAL"}`, `{"exportTo":["."],"hosts":["a.b"],"location":"MESH_EXTERNAL"}`},
		"an enum by its number":   {"ServiceEntry", `{"hosts":["a.b"],"location":0,"resolution":1}`, ""},
		"a number as text":        {"ServiceEntry", `{"hosts":["a.b"],"ports":[{"number":"80","name":"http"}]}`, ""},
		"a value in a map":        {"VirtualService", `{"http":[{"match":[{"headers":{"x":{"exact":""}}}],"route":[` + route + `]}]}`, ""},
		"none":                    {"Sidecar", `null`, ""},
		"of our own":              {"Role", `{"rules":[{"verbs":["get"],"kinds":["*"],"namespaces":[]}]}`, `{"rules":[{"kinds":["*"],"namespaces":[],"verbs":["get"]}]}`},
	} {
		documents, err := config.Decode(name, []byte(document(c.kind, c.spec)), schema.Pilot().Type)
		if err != nil || len(documents) != 1 {
			t.Errorf("%s: %v", name, err)
			continue
		}
		object := documents[0].Config
		if got := object.AsWritten(); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		text, err := config.ToJSON(object, "")
		if err != nil || c.want != "" && !strings.Contains(string(text), `"spec":`+c.want) {
			t.Errorf("%s: %s, %v", name, text, err)
		}
		again, err := config.FromJSON(text, schema.Pilot().Type)
		if err != nil || !config.SameContent(again, object) || again.AsWritten() != c.want {
			t.Errorf("%s: %v, read back as %s", name, err, again.AsWritten())
		}
		if spec, err := schema.Pilot().Kind(object.GroupVersionKind).Codec.ReadJSON([]byte(object.AsWritten())); c.want != "" && (err != nil || !config.SameSpec(spec, object.Spec)) {
			t.Errorf("%s: read leniently as %v, %v", name, spec, err)
		}
		if clone := object.Clone(); clone.AsWritten() != c.want {
			t.Errorf("%s: the clone has %s", name, clone.AsWritten())
		}
		other := *object
		other.Spec = object.Clone().Spec
		if got := other.AsWritten(); got != "" {
			t.Errorf("%s: another spec has %s", name, got)
		}
	}
}

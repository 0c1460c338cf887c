package bootstrap_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/bootstrap"
)

func patchesOf(t *testing.T, text string) *structpb.Struct {
	t.Helper()
	out := &structpb.Struct{}
	if err := protojson.Unmarshal([]byte(text), out); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestPatchedJSON: patches merge as messages do, and pass on types that nobody here knows.
func TestPatchedJSON(t *testing.T) {
	t.Parallel()
	b, err := bootstrap.Build(bootstrap.Options{Type: discovery.Sidecar, IPs: []string{"10.0.0.1"}, Name: "n", Namespace: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	plain, err := bootstrap.JSON(b)
	if err != nil {
		t.Fatal(err)
	}
	for _, none := range []*structpb.Struct{nil, {}} {
		if same, err := bootstrap.PatchedJSON(b, none); err != nil || !bytes.Equal(same, plain) {
			t.Errorf("without patches it is %s, %v", same, err)
		}
	}
	for name, c := range map[string]struct {
		patches string
		path    []any
		want    string
	}{
		"a field":                 {`{"stats_flush_interval": "9s"}`, []any{"stats_flush_interval"}, `"9s"`},
		"a list grows":            {`{"layered_runtime": {"layers": [{"name": "mine", "static_layer": {"a": 1}}]}}`, []any{"layered_runtime", "layers", 1.0, "name"}, `"mine"`},
		"what is there stays":     {`{"layered_runtime": {"layers": [{"name": "mine", "static_layer": {"a": 1}}]}}`, []any{"layered_runtime", "layers", 0.0, "name"}, `"static"`},
		"a wrapper":               {`{"stats_config": {"use_all_default_tags": true}}`, []any{"stats_config", "use_all_default_tags"}, `true`},
		"a map gets an entry":     {`{"node": {"metadata": {"A": "b"}}}`, []any{"node", "metadata", "A"}, `"b"`},
		"a map keeps an entry":    {`{"node": {"metadata": {"A": "b"}}}`, []any{"node", "metadata", "NAMESPACE"}, `"shop"`},
		"another of the choices":  {`{"admin": {"address": {"pipe": {"path": "/p"}}}}`, []any{"admin", "address"}, `{"pipe":{"path":"/p"}}`},
		"a type that is unknown":  {`{"stats_sinks": [{"name": "a", "typed_config": {"@type": "x/own.Sink", "b": 1}}]}`, []any{"stats_sinks", 0.0, "typed_config"}, `{"@type":"x/own.Sink","b":1}`},
		"a field that is unknown": {`{"of_later": {"a": 1}}`, []any{"of_later", "a"}, `1`},
	} {
		text, err := bootstrap.PatchedJSON(b, patchesOf(t, c.patches))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var got any
		if err := json.Unmarshal(text, &got); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, step := range c.path {
			switch at := got.(type) {
			case map[string]any:
				got = at[step.(string)]
			case []any:
				got = at[int(step.(float64))]
			}
		}
		if is, _ := json.Marshal(got); string(is) != c.want {
			t.Errorf("%s: %s, want %s", name, is, c.want)
		}
	}
}

// TestGuard: what the machine's owner decides is left out and named, and the rest stays.
func TestGuard(t *testing.T) {
	t.Parallel()
	rest, left := bootstrap.Guard(patchesOf(t, `{"admin": {}, "node": {"id": "x"}, "stats_flush_interval": "9s", "bootstrap_extensions": [{"name": "a"}],
		"static_resources": {"clusters": [{"name": "xds-grpc"}, {"name": "mine"}]}}`))
	if want := []string{"admin", "bootstrap_extensions", "node", "the cluster xds-grpc"}; !slices.Equal(left, want) {
		t.Errorf("it leaves out %q, want %q", left, want)
	}
	if text, _ := json.Marshal(rest.AsMap()); string(text) != `{"static_resources":{"clusters":[{"name":"mine"}]},"stats_flush_interval":"9s"}` {
		t.Errorf("it leaves %s", text)
	}
}

package openapi

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// examples returns valid objects: at least one of each kind.
func examples(t testing.TB) []*config.Config {
	t.Helper()
	files, err := filepath.Glob("../../../../storage/schema/testdata/served/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	var out []*config.Config
	seen := map[string]bool{}
	for _, file := range append(files, "testdata/objects.yaml") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		documents, err := config.Decode(file, text, schema.Pilot().Type)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range documents {
			if _, err := schema.Pilot().Kind(d.Config.GroupVersionKind).Validate(d.Config); err != nil {
				t.Fatalf("%s: %v", d.Config.Key(), err)
			}
			seen[d.Config.Kind] = true
			out = append(out, d.Config)
		}
	}
	for _, k := range schema.Pilot().All() {
		if !seen[k.Kind] {
			t.Errorf("there is no example of kind %s: add one to testdata/objects.yaml", k.Kind)
		}
	}
	return out
}

// document returns an object as JSON reads it, in a version of its kind.
func document(t testing.TB, object *config.Config, version string) map[string]any {
	t.Helper()
	text, err := config.ToJSON(object, version)
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

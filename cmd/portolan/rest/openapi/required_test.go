package openapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// TestRequiredFieldsAreRequired takes each required field away from each place of each
// example where its type stands: validation refuses the object then.
func TestRequiredFieldsAreRequired(t *testing.T) {
	t.Parallel()
	defined := define(schema.Pilot())
	for name, fields := range requiredFields {
		for _, field := range fields {
			if !slices.Contains(defined.named[name], field) {
				t.Errorf("requiredFields: %s has no field %s", name, field)
			}
		}
	}
	tried := map[string]bool{}
	for _, object := range examples(t) {
		k := schema.Pilot().Kind(object.GroupVersionKind)
		whole := document(t, object, "")
		eachMapping(defined.definitions, kindName(k, object.Version), whole, k.Kind, func(name, path string, value map[string]any) {
			for _, field := range defined.definitions[name].Required {
				tried[defined.tables[name]+"."+field] = true
				before, has := value[field]
				delete(value, field)
				if !refuses(t, k, whole) {
					t.Errorf("%s: %s is required, and validation accepts the object without it", path, field)
				}
				if value[field] = before; !has {
					t.Errorf("%s: %s is required, and validation accepts an example without it", path, field)
				}
			}
		})
	}
	for name, fields := range requiredFields {
		for _, field := range fields {
			if !tried[name+"."+field] {
				t.Errorf("requiredFields: no example has %s with %s: add one to testdata/objects.yaml", name, field)
			}
		}
	}
}

// refuses says whether an object cannot be read, or validation refuses it.
func refuses(t *testing.T, k *schema.Schema, whole map[string]any) bool {
	t.Helper()
	text, err := json.Marshal(whole)
	if err != nil {
		t.Fatal(err)
	}
	object, err := config.FromJSON(text, schema.Pilot().Type)
	if err == nil {
		_, err = k.Validate(object)
	}
	return err != nil
}

// eachMapping calls found with each mapping within a value that a definition describes, and
// with the name of the definition.
func eachMapping(definitions map[string]*spec.Schema, name string, value map[string]any, path string, found func(name, path string, value map[string]any)) {
	found(name, path, value)
	var within func(s spec.Schema, value any, path string)
	within = func(s spec.Schema, value any, path string) {
		switch value := value.(type) {
		case []any:
			for i, item := range value {
				within(*s.Items.Schema, item, fmt.Sprintf("%s[%d]", path, i))
			}
		case map[string]any:
			if ref, ok := strings.CutPrefix(s.Ref.String(), definitionPrefix); ok {
				eachMapping(definitions, ref, value, path, found)
			} else if s.AdditionalProperties != nil {
				for _, key := range slices.Sorted(maps.Keys(value)) {
					within(*s.AdditionalProperties.Schema, value[key], path+"["+key+"]")
				}
			}
		}
	}
	for _, field := range slices.Sorted(maps.Keys(value)) {
		within(definitions[name].Properties[field], value[field], path+"."+field)
	}
}

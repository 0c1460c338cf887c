package batch_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/batch"
)

func TestIndex(t *testing.T) {
	t.Parallel()
	tests := []struct {
		field     string
		operation int
		rest      string
		ok        bool
	}{
		{batch.Field(2, "object.spec.hosts[1]"), 2, "spec.hosts[1]", true},
		{batch.Field(0, "verb"), 0, "", true},
		{batch.Field(7, ""), 7, "", true},
		{"spec.hosts", 0, "", false},
		{"operations[x]", 0, "", false},
		{"operations[1", 0, "", false},
		{"operations[-1]", 0, "", false},
	}
	for _, test := range tests {
		operation, rest, ok := batch.Index(test.field)
		if operation != test.operation || rest != test.rest || ok != test.ok {
			t.Errorf("Index(%q) is %d, %q, %v", test.field, operation, rest, ok)
		}
	}
}

// TestJSONIsThatOfEncodingJSON compares batches with what encoding/json makes of them.
func TestJSONIsThatOfEncodingJSON(t *testing.T) {
	t.Parallel()
	object := json.RawMessage(`{"kind":"Gateway","metadata":{"name":"a"}}`)
	for name, operations := range map[string][]batch.Operation{
		"none":    nil,
		"objects": {{Verb: batch.Apply, Object: object}, {Verb: batch.Restore, Object: object}},
		"names":   {{Verb: batch.Delete, APIVersion: "v1", Kind: "Gateway", Name: "b"}, {Verb: batch.Create, Object: object}},
		"both":    {{Verb: batch.Delete, Object: object, ResourceVersion: "7"}},
		"neither": {{Verb: batch.Apply}},
	} {
		b := batch.New(operations...)
		b.Message, b.Strict, b.Force = "why \"so\"", "error", true
		text, err := b.JSON()
		if err != nil {
			t.Fatal(err)
		}
		standard, err := json.Marshal(b)
		if err != nil {
			t.Fatal(err)
		}
		var got, want batch.Batch
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatalf("%s: %v in %s", name, err, text)
		}
		if err := json.Unmarshal(standard, &want); err != nil {
			t.Fatal(err)
		}
		if len(got.Operations)+len(want.Operations) > 0 && !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %s, want %s", name, text, standard)
		}
	}
}

package batch_test

import (
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

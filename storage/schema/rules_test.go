package schema_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/storage/config"
)

// rule is an object, by kind and spec in YAML, with all its findings.
type rule struct {
	name            string
	kind            config.GroupVersionKind
	spec            string
	refused, warned []string
}

func checkRules(t *testing.T, rules []rule) {
	t.Helper()
	for _, r := range rules {
		t.Run(r.kind.Kind+"/"+r.name, func(t *testing.T) {
			t.Parallel()
			refused, warned := validate(t, spec(r.kind, r.spec))
			if d := cmp.Diff(r.refused, refused); d != "" {
				t.Errorf("refused (-want +got):\n%s", d)
			}
			if d := cmp.Diff(r.warned, warned); d != "" {
				t.Errorf("warned (-want +got):\n%s", d)
			}
		})
	}
}

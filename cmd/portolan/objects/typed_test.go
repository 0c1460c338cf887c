package objects

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// TestDryRunIsDescribed: describe says that a policy is only watched.
func TestDryRunIsDescribed(t *testing.T) {
	t.Parallel()
	for annotation, want := range map[string]bool{"true": true, "false": false} {
		u := &unstructured.Unstructured{Object: map[string]any{
			"kind": schema.AuthorizationPolicy.Kind, "metadata": map[string]any{"annotations": map[string]any{"istio.io/dry-run": annotation}},
		}}
		env := &environment{Environment: &cli.Environment{Now: time.Now}}
		if dry := len(env.origin(Description{Object: u})) > 0; dry != want {
			t.Errorf("%s: described as a dry run: %t", annotation, dry)
		}
	}
}

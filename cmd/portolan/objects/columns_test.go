package objects

import (
	"testing"
	"time"

	security "istio.io/api/security/v1beta1"
	typev1beta1 "istio.io/api/type/v1beta1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// TestPolicyColumns: a policy shows its targets, and whether it is only watched.
func TestPolicyColumns(t *testing.T) {
	t.Parallel()
	ref := func(kind, name string) *typev1beta1.PolicyTargetReference {
		return &typev1beta1.PolicyTargetReference{Kind: kind, Name: name}
	}
	for want, spec := range map[string]*security.AuthorizationPolicy{
		"all":                      {},
		"app=web":                  {Selector: &typev1beta1.WorkloadSelector{MatchLabels: map[string]string{"app": "web"}}},
		"gateway/edge":             {TargetRef: ref("Gateway", "edge")},
		"gateway/edge,service/web": {TargetRefs: []*typev1beta1.PolicyTargetReference{ref("Gateway", "edge"), ref("Service", "web")}},
	} {
		if got := policySelector(spec, true); got != want {
			t.Errorf("%v: %q, want %q", spec, got, want)
		}
	}
	for want, object := range map[string]map[string]any{
		"ALLOW":          {},
		"DENY":           {"spec": map[string]any{"action": "DENY"}, "metadata": map[string]any{"annotations": map[string]any{"istio.io/dry-run": "false"}}},
		"DENY (dry run)": {"spec": map[string]any{"action": "DENY"}, "metadata": map[string]any{"annotations": map[string]any{"istio.io/dry-run": "true"}}},
	} {
		object["kind"] = schema.AuthorizationPolicy.Kind
		u := &unstructured.Unstructured{Object: object}
		if got := policyAction(u); got != want {
			t.Errorf("%v: %q, want %q", object, got, want)
		}
		env := &environment{Environment: &cli.Environment{Now: time.Now}}
		if dry := len(env.origin(description{Object: u})) > 0; dry != (want == "DENY (dry run)") {
			t.Errorf("%v: described as a dry run: %t", object, dry)
		}
	}
}

package names_test

import (
	"testing"

	"github.com/portolan-mesh/portolan/xds/names"
)

func TestPolicyRuleKeys(t *testing.T) {
	t.Parallel()
	rule := names.PolicyRule{Namespace: "shop", Name: "web.v1", Rule: 12}
	for key, want := range map[string]string{
		rule.Key():              "ns[shop]-policy[web.v1]-rule[12]",
		rule.CustomKey("opa-1"): "istio-ext-authz-opa-1-ns[shop]-policy[web.v1]-rule[12]",
		rule.CustomKey("a") + names.UnaskedSuffix: "istio-ext-authz-a-ns[shop]-policy[web.v1]-rule[12]-deny-due-to-bad-CUSTOM-action",
	} {
		if key != want {
			t.Errorf("got %s, want %s", key, want)
		}
		if got, ok := names.ParsePolicyRule(key); !ok || got != rule {
			t.Errorf("%s: parsed as %+v, %t", key, got, ok)
		}
	}
	for _, other := range []string{"", "mesh", "ns[a]-policy[b]", "ns[a]-policy[b]-rule[]", "x-ns[a]-policy[b]-rule[0]", "ns[a]-policy[b]-rule[99999999999999999999]"} {
		if got, ok := names.ParsePolicyRule(other); ok {
			t.Errorf("%s is parsed as %+v", other, got)
		}
	}
}

package verdict_test

import (
	"slices"
	"testing"

	"github.com/portolan-mesh/portolan/xds/verdict"
	"github.com/portolan-mesh/portolan/xds/verdict/index"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestBindingsWithoutARole: a binding has a verdict until its role exists, in the binding's
// namespace or in the root namespace.
func TestBindingsWithoutARole(t *testing.T) {
	t.Parallel()
	binding := func(namespace, name, role string) string {
		return "{apiVersion: portolan.io/v1, kind: RoleBinding, metadata: {name: " + name + ", namespace: " + namespace + "}, spec: {role: " + role + ", subjects: [{kind: User, name: ann}]}}"
	}
	role := func(namespace string) string {
		return "{apiVersion: portolan.io/v1, kind: Role, metadata: {name: releaser, namespace: " + namespace + "}, spec: {rules: [{verbs: [get], kinds: [gateways]}]}}"
	}
	documents := []string{binding("shop", "own", "releaser"), binding("bank", "other", "releaser"), binding("istio-system", "all", "releaser"), binding("shop", "built-in", "viewer")}
	for what, c := range map[string]struct {
		roles []string
		want  []string
	}{
		"no role":                  {nil, []string{"bank/other", "istio-system/all", "shop/own"}},
		"one of a namespace":       {[]string{role("shop")}, []string{"bank/other", "istio-system/all"}},
		"one of the whole mesh":    {[]string{role("istio-system")}, nil},
		"one of another namespace": {[]string{role("web")}, []string{"bank/other", "istio-system/all", "shop/own"}},
	} {
		before := xdstest.NewWorld(t, documents...)
		after := xdstest.NewWorld(t, slices.Concat(documents, c.roles)...)
		var x *index.Index
		for _, facts := range []verdict.Facts{{Mesh: before.Context()}, {Mesh: after.Context()}} {
			x = x.Next(facts)
		}
		var told []string
		for l := range x.Lists() {
			for _, v := range l.Verdicts {
				if v.Code == verdict.RoleMissing && v.Field == "spec.role" {
					told = append(told, l.Of.Namespace+"/"+l.Of.Name)
				}
			}
		}
		slices.Sort(told)
		if !slices.Equal(told, c.want) {
			t.Errorf("%s: told are %v, want %v", what, told, c.want)
		}
	}
}

package policy_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/mesh/policy"
)

// object returns an AuthorizationPolicy, given as NAMESPACE/NAME: SPEC, of an age.
func object(t *testing.T, text string, created int64) *config.Config {
	t.Helper()
	key, spec, _ := strings.Cut(text, ": ")
	namespace, name, _ := strings.Cut(key, "/")
	decoded, err := config.Decode("test", []byte("apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: "+name+", namespace: "+namespace+"}\nspec: "+spec+"\n"), schema.Pilot().Type)
	if err != nil {
		t.Fatal(err)
	}
	decoded[0].Config.CreationTimestamp = time.Unix(created, 0)
	return decoded[0].Config
}

// TestSelects: a policy is for workloads of its namespace, or of all if it is in the root
// namespace, that have its labels, or for the Gateways that it targets.
func TestSelects(t *testing.T) {
	t.Parallel()
	attached := func(key config.Key) bool { return key.Namespace != "bank" && key.Name == "door" }
	web := policy.Workload{Namespace: "shop", Labels: labels.Instance{"app": "web", "v": "1"}, Attached: attached}
	edge := policy.Workload{Namespace: "shop", Labels: labels.Instance{"app": "edge", policy.GatewayLabel: "front"}, Gateway: true, Attached: attached}
	for text, want := range map[string][2]bool{ // the workload, the gateway
		"shop/a: {}": {true, true},
		"bank/a: {}": {false, false},
		"root/a: {}": {true, true},
		"shop/a: {selector: {matchLabels: {app: web}}}":                                                             {true, false},
		"shop/a: {selector: {matchLabels: {app: web, v: '2'}}}":                                                     {false, false},
		"root/a: {selector: {matchLabels: {app: edge}}}":                                                            {false, true},
		"shop/a: {targetRefs: [{kind: Gateway, group: gateway.networking.k8s.io, name: front}]}":                    {false, true},
		"shop/a: {targetRef: {kind: Gateway, group: gateway.networking.k8s.io, name: front}}":                       {false, true},
		"shop/a: {targetRefs: [{kind: Gateway, group: gateway.networking.k8s.io, name: back}]}":                     {false, false},
		"shop/a: {targetRefs: [{kind: Service, group: '', name: front}]}":                                           {false, false},
		"root/a: {targetRefs: [{kind: Gateway, group: gateway.networking.k8s.io, name: front}]}":                    {false, false},
		"shop/a: {targetRefs: [{kind: Gateway, group: networking.istio.io, name: door}]}":                           {false, true},
		"root/a: {targetRef: {kind: Gateway, group: networking.istio.io, name: door}}":                              {false, true},
		"bank/a: {targetRefs: [{kind: Gateway, group: networking.istio.io, name: door}]}":                           {false, false},
		"shop/a: {targetRefs: [{kind: Gateway, group: networking.istio.io, name: front}]}":                          {false, false},
		"shop/a: {targetRefs: [{kind: Gateway, group: gateway.networking.k8s.io, name: door}]}":                     {false, false},
		"shop/a: {targetRefs: [{kind: Service, name: a}, {kind: Gateway, group: networking.istio.io, name: door}]}": {false, true},
	} {
		p := policy.NewPolicy(object(t, text, 0))
		if got := [2]bool{p.Selects(web, "root"), p.Selects(edge, "root")}; got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}

// TestReplace: policies are in the order of their age, then of their names.
func TestReplace(t *testing.T) {
	t.Parallel()
	a, b, c := object(t, "shop/a: {}", 2), object(t, "shop/b: {}", 1), object(t, "shop/c: {}", 2)
	var p *policy.Policies
	expect := func(step string, want ...*config.Config) {
		t.Helper()
		var got []*config.Config
		for o := range p.All() {
			got = append(got, o.Config)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", step, got, want)
		}
	}
	expect("none")
	for _, o := range []*config.Config{c, a, b} {
		p = p.Replace(nil, o)
	}
	expect("three", b, a, c)
	changed := object(t, "shop/a: {action: DENY, rules: [{}]}", 2)
	before := p
	p = p.Replace(a, changed)
	expect("one changed", b, changed, c)
	p, before = before, p
	expect("what was is not modified", b, a, c)
	p = before.Replace(b, nil).Replace(c, nil)
	expect("one left", changed)
	if p = p.Replace(changed, nil); p != nil {
		t.Errorf("none left: %v", p)
	}
}

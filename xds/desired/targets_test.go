package desired_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestATargetedGatewayTouchesWhomItSelects: a policy that targets a Gateway follows its selector. A
// changed selector changes the filters of the gateways that it selected and selects, and a changed
// server those of none.
func TestATargetedGatewayTouchesWhomItSelects(t *testing.T) {
	t.Parallel()
	gateway := func(name, app, host string) string {
		return xdstest.Object("Gateway", name, "{selector: {app: "+app+"}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ["+host+"]}]}")
	}
	policy := func(name, spec string) string {
		return xdstest.Object("AuthorizationPolicy", name, "{"+spec+"action: DENY, rules: [{}]}")
	}
	const door = "targetRefs: [{group: networking.istio.io, kind: Gateway, name: door}], "
	w := xdstest.NewWorld(t, gateway("shop/door", "a", "web.test"), gateway("istio-system/door", "z", "web.test"),
		xdstest.Object("Gateway", "all", "{servers: [{port: {number: 90, name: http, protocol: HTTP}, hosts: ['*']}]}"))
	groups := xdstest.NewGroups(catalogue.Types(), w.Context)
	var members []xdstest.Member
	for i, node := range []xdstest.Node{
		{Namespace: "shop", Type: discovery.Router, Labels: map[string]string{"app": "a"}},
		{Namespace: "shop", Type: discovery.Router, Labels: map[string]string{"app": "b"}},
		{Namespace: "bank", Type: discovery.Router, Labels: map[string]string{"app": "b"}},
		{Namespace: "shop", Labels: map[string]string{"app": "b"}},
	} {
		node.IP = fmt.Sprintf("10.0.0.%d", 1+i)
		m := groups.Join(node.Proxy(t))
		defer m.Close()
		members = append(members, m)
	}
	follow := func() (out []map[string]string) {
		for _, m := range members {
			m.Follow()
			filters := map[string]string{}
			for name, version := range m.Versions() {
				if strings.HasPrefix(name, "ECDS ") {
					filters[name] = version
				}
			}
			out = append(out, filters)
		}
		return out
	}
	before := follow()
	for _, step := range []struct {
		name, add, remove string
		changed           []int
	}{
		{name: "a policy", add: policy("shop/p", door), changed: []int{0}},
		{name: "another server", add: gateway("shop/door", "a", "shop.test")},
		{name: "another selector", add: gateway("shop/door", "b", "shop.test"), changed: []int{0, 1}},
		{name: "the Gateway is gone", remove: "gateway/shop/door", changed: []int{1}},
		{name: "it is there again", add: gateway("shop/door", "b", "shop.test"), changed: []int{1}},
		{name: "the policy is gone", remove: "authorizationpolicy/shop/p", changed: []int{1}},
		{name: "a policy of the mesh", add: policy("istio-system/p", door)},
		{name: "whose Gateway selects", add: gateway("istio-system/door", "b", "web.test"), changed: []int{1, 2}},
	} {
		if step.add != "" {
			w.Apply(step.add)
		}
		if step.remove != "" {
			w.Delete(step.remove)
		}
		after := follow()
		for i := range members {
			var names, want []string
			for name, version := range after[i] {
				if before[i][name] != version {
					names = append(names, name)
				}
			}
			slices.Sort(names)
			if slices.Contains(step.changed, i) {
				want = []string{"ECDS portolan.authorization.http.deny"}
			}
			if !slices.Equal(names, want) {
				t.Errorf("%s: proxy %d: %v changed, want %v", step.name, i, names, want)
			}
		}
		before = after
	}
}

package simulate_test

import (
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	httpauthzv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	networkauthzv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/ext_authz/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	networkrbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/xds/envoy/message"
	"github.com/portolan-mesh/portolan/xds/envoy/rbac"
	"github.com/portolan-mesh/portolan/xds/simulate"
)

// TestAsked: shadow rules select what an authorizer is asked about; the request goes on.
func TestAsked(t *testing.T) {
	t.Parallel()
	selected := func(filter string) *matcherv3.MetadataMatcher {
		return rbac.Metadata(filter, []string{"x_shadow_effective_policy_id"}, rbac.Text(rbac.Prefix("ns[")))
	}
	http := func(configs ...proto.Message) (out []*hcmv3.HttpFilter) {
		for i, c := range configs {
			out = append(out, &hcmv3.HttpFilter{Name: string(rune('a' + i)), ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: message.Pack(c)}})
		}
		return out
	}
	network := func(configs ...proto.Message) (out []*listenerv3.Filter) {
		for i, c := range configs {
			out = append(out, &listenerv3.Filter{Name: string(rune('a' + i)), ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: message.Pack(c)}})
		}
		return out
	}
	const ofRequests, ofConnections = "envoy.filters.http.rbac", "envoy.filters.network.rbac"
	onPath := &httprbacv3.RBAC{ShadowRules: rules(rbacv3.RBAC_DENY, rbac.PermissionPath(rbac.Exact("/a"))), ShadowRulesStatPrefix: "x_"}
	onPort := &networkrbacv3.RBAC{StatPrefix: "tcp", ShadowRules: rules(rbacv3.RBAC_DENY, rbac.PermissionPort(81)), ShadowRulesStatPrefix: "x_"}
	for name, c := range map[string]struct {
		network []*listenerv3.Filter
		http    []*hcmv3.HttpFilter
		request simulate.Request
		want    bool
	}{
		"a selected request":    {nil, http(onPath, &httpauthzv3.ExtAuthz{FilterEnabledMetadata: selected(ofRequests)}), simulate.Request{Path: "/a"}, true},
		"another request":       {nil, http(onPath, &httpauthzv3.ExtAuthz{FilterEnabledMetadata: selected(ofRequests)}), simulate.Request{Path: "/b"}, false},
		"a selected connection": {network(onPort, &networkauthzv3.ExtAuthz{StatPrefix: "x", FilterEnabledMetadata: selected(ofConnections)}), nil, simulate.Request{Port: 81, Protocol: simulate.TCP}, true},
		"another connection":    {network(onPort, &networkauthzv3.ExtAuthz{StatPrefix: "x", FilterEnabledMetadata: selected(ofConnections)}), nil, simulate.Request{Port: 82, Protocol: simulate.TCP}, false},
	} {
		p, err := workload(t, c.network, c.http, nil)
		if err != nil {
			t.Fatal(err)
		}
		c.request.Inbound = true
		got := p.Run(c.request)
		if _, refused := got.Refused(); got.Asked != c.want || refused {
			t.Errorf("%s: asked is %t, refused is %t: %s", name, got.Asked, refused, got)
		}
	}
	p, err := workload(t, nil, http(&httpauthzv3.ExtAuthz{}), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := p.Run(simulate.Request{Inbound: true}); got.Err == nil || got.Asked {
		t.Errorf("a filter that asks about everything: %s", got)
	}
}

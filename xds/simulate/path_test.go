package simulate_test

import (
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/envoy/message"
	"github.com/portolan-mesh/portolan/xds/envoy/rbac"
	"github.com/portolan-mesh/portolan/xds/simulate"
	"github.com/portolan-mesh/portolan/xds/simulate/pathtest"
)

// forwarding simulates a proxy that forwards all that a policy does not deny.
func forwarding(t *testing.T, level meshv1alpha1.MeshConfig_ProxyPathNormalization_NormalizationType, denies *rbac.Permission) *simulate.Proxy {
	t.Helper()
	filter := &hcmv3.HttpFilter{Name: "deny", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: message.Pack(&httprbacv3.RBAC{Rules: rules(rbacv3.RBAC_DENY, denies)})}}
	return simulated(t, envoy.Listener(envoy.ListenerOptions{Name: "virtualInbound", Host: "0.0.0.0", Port: 15006, FilterChains: []*listenerv3.FilterChain{
		envoy.FilterChain(envoy.FilterChainOptions{Filters: []*listenerv3.Filter{envoy.HTTPConnectionManager(envoy.HTTPOptions{
			StatPrefix: "http", Normalization: level, Filters: []*hcmv3.HttpFilter{filter, envoy.RouterFilter()},
			RouteConfig: envoy.RouteConfig(envoy.RouteConfigOptions{Name: "r", VirtualHosts: []*routev3.VirtualHost{
				envoy.VirtualHost(envoy.VirtualHostOptions{Name: "v", Domains: []string{"*"}, Routes: []envoy.RouteOptions{
					{Name: "admin", Match: envoy.MatchOptions{Path: envoy.StringMatch{Kind: envoy.Prefix, Value: "/admin"}}, Forward: &envoy.Forward{Clusters: []envoy.WeightedCluster{{Name: "c", Weight: 1}}}},
					{Name: "rest", Forward: &envoy.Forward{Clusters: []envoy.WeightedCluster{{Name: "c", Weight: 1}}}},
				}}),
			}}),
		})}}),
	}}))
}

// TestPaths: filters, routes and destinations see the path that Envoy makes of it.
func TestPaths(t *testing.T) {
	t.Parallel()
	for _, level := range pathtest.Levels() {
		open := forwarding(t, level, rbac.PermissionPath(rbac.Exact("/nowhere")))
		for _, c := range pathtest.Cases() {
			got, want := open.Run(simulate.Request{Inbound: true, Path: c.Path}), c.At(level)
			if want == pathtest.Refused {
				if got.Status != 400 || got.Err != nil {
					t.Errorf("%s: %q: %s, path %q, want 400", level, c.Path, got, got.Path)
				}
				continue
			}
			if got.Path != want || got.Err != nil {
				t.Errorf("%s: %q is %q, %v, want %q", level, c.Path, got.Path, got.Err, want)
			}
		}
	}
}

// TestPathsBeforePolicies: policies and routes judge the normalised path.
func TestPathsBeforePolicies(t *testing.T) {
	t.Parallel()
	p := forwarding(t, meshv1alpha1.MeshConfig_ProxyPathNormalization_BASE, rbac.PermissionPath(rbac.Exact("/admin/secret")))
	if got := p.Run(simulate.Request{Inbound: true, Path: "/x/../admin/%73ecret?q"}); got.Status != 403 {
		t.Errorf("the policy does not see the path: %s", got)
	}
	if got := p.Run(simulate.Request{Inbound: true, Protocol: simulate.HTTP2, Path: "/ä"}); got.Path != "/%C3%A4" {
		t.Errorf("HTTP/2 with bytes that are no ASCII: %s, path %q", got, got.Path)
	}
	if got := p.Run(simulate.Request{Inbound: true, Path: "/x/../admin/other"}); got.Route != "admin" || got.Path != "/admin/other" {
		t.Errorf("the route is %q for %q", got.Route, got.Path)
	}
}

// TestUnknownPathOptions: what the simulation does not know of paths is an error.
func TestUnknownPathOptions(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*hcmv3.HttpConnectionManager){
		"escaped slashes": func(m *hcmv3.HttpConnectionManager) {
			m.PathWithEscapedSlashesAction = hcmv3.HttpConnectionManager_UNESCAPE_AND_REDIRECT
		},
		"options": func(m *hcmv3.HttpConnectionManager) {
			m.PathNormalizationOptions = &hcmv3.HttpConnectionManager_PathNormalizationOptions{}
		},
	} {
		manager := &hcmv3.HttpConnectionManager{StatPrefix: "http", RouteSpecifier: &hcmv3.HttpConnectionManager_RouteConfig{
			RouteConfig: envoy.RouteConfig(envoy.RouteConfigOptions{Name: "r"}),
		}, HttpFilters: []*hcmv3.HttpFilter{envoy.RouterFilter()}}
		change(manager)
		l := envoy.Listener(envoy.ListenerOptions{Name: "virtualInbound", Host: "0.0.0.0", Port: 15006, FilterChains: []*listenerv3.FilterChain{
			envoy.FilterChain(envoy.FilterChainOptions{Filters: []*listenerv3.Filter{
				{Name: "http", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: message.Pack(manager)}},
			}}),
		}})
		if got := simulated(t, l).Run(simulate.Request{Inbound: true}); got.Err == nil || got.Status != 0 {
			t.Errorf("%s: %s", name, got)
		}
	}
}

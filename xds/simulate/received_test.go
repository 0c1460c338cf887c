package simulate_test

import (
	"maps"
	"net/netip"
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"

	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/envoy/message"
	"github.com/portolan-mesh/portolan/xds/envoy/rbac"
	"github.com/portolan-mesh/portolan/xds/simulate"
)

// TestOrigins: which address of x-forwarded-for a policy judges, at a sidecar and at gateways behind
// trusted proxies.
func TestOrigins(t *testing.T) {
	t.Parallel()
	denies := &httprbacv3.RBAC{Rules: &rbacv3.RBAC{Action: rbacv3.RBAC_DENY, Policies: map[string]*rbacv3.Policy{
		"p": rbac.Policy([]*rbac.Permission{rbac.PermissionAny()}, []*rbac.Principal{rbac.PrincipalRemoteIP(rbac.CIDR(netip.MustParsePrefix("192.0.2.0/24")))}),
	}}}
	filters := []*hcmv3.HttpFilter{{Name: "deny", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: message.Pack(denies)}}, envoy.RouterFilter()}
	for _, c := range []struct {
		edge   bool
		hops   uint32
		header string
		denied bool
	}{
		{}, {header: "192.0.2.1", denied: true}, {header: "192.0.2.1, 10.0.0.1"}, {header: "10.0.0.1,192.0.2.1", denied: true}, {header: "192.0.2.1:80"}, {header: "192.0.2.1,"},
		{edge: true, header: "192.0.2.1"}, {edge: true, hops: 1, header: "192.0.2.1", denied: true}, {edge: true, hops: 1, header: "192.0.2.1, 10.0.0.1"},
		{edge: true, hops: 2, header: "192.0.2.1, 10.0.0.1", denied: true}, {edge: true, hops: 2, header: "192.0.2.1"},
	} {
		p := simulated(t, envoy.Listener(envoy.ListenerOptions{Name: "virtualInbound", Host: "0.0.0.0", Port: 15006, FilterChains: []*listenerv3.FilterChain{
			envoy.FilterChain(envoy.FilterChainOptions{Filters: []*listenerv3.Filter{envoy.HTTPConnectionManager(envoy.HTTPOptions{
				StatPrefix: "http", Edge: c.edge, TrustedHops: c.hops, Filters: filters, RouteConfig: envoy.RouteConfig(envoy.RouteConfigOptions{Name: "r"}),
			})}}),
		}}))
		got := p.Run(simulate.Request{Inbound: true, Headers: map[string]string{"X-Forwarded-For": c.header}})
		if _, denied := got.Refused(); denied != c.denied {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

// TestReceivedHeaders: what a proxy says of the client in headers, and leaves of what the client says.
func TestReceivedHeaders(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		edge bool
		hops uint32
		sent map[string]string
		want map[string]string
	}{
		{want: map[string]string{"x-forwarded-proto": "http"}},
		{sent: map[string]string{"X-Forwarded-For": "192.0.2.1", "X-Forwarded-Proto": "https"}, want: map[string]string{"X-Forwarded-For": "192.0.2.1", "X-Forwarded-Proto": "https"}},
		{edge: true, want: map[string]string{"x-forwarded-for": "10.0.0.9", "x-forwarded-proto": "http"}},
		{edge: true, sent: map[string]string{"X-Forwarded-For": "192.0.2.1", "X-Forwarded-Proto": "https"}, want: map[string]string{"x-forwarded-for": "192.0.2.1,10.0.0.9", "x-forwarded-proto": "http"}},
		{edge: true, hops: 1, sent: map[string]string{"X-Forwarded-Proto": "https"}, want: map[string]string{"x-forwarded-for": "10.0.0.9", "X-Forwarded-Proto": "https"}},
	} {
		p := simulated(t, envoy.Listener(envoy.ListenerOptions{Name: "virtualInbound", Host: "0.0.0.0", Port: 15006, FilterChains: []*listenerv3.FilterChain{
			envoy.FilterChain(envoy.FilterChainOptions{Filters: []*listenerv3.Filter{envoy.HTTPConnectionManager(envoy.HTTPOptions{
				StatPrefix: "http", Edge: c.edge, TrustedHops: c.hops, Filters: []*hcmv3.HttpFilter{envoy.RouterFilter()},
				RouteConfig: envoy.RouteConfig(envoy.RouteConfigOptions{Name: "r", VirtualHosts: []*routev3.VirtualHost{
					envoy.VirtualHost(envoy.VirtualHostOptions{Name: "v", Domains: []string{"*"}, Routes: []envoy.RouteOptions{{Forward: &envoy.Forward{Clusters: []envoy.WeightedCluster{{Name: "c", Weight: 1}}}}}}),
				}}),
			})}}),
		}}))
		got := p.Run(simulate.Request{Inbound: true, Source: "10.0.0.9", Headers: c.sent})
		if got.Err != nil || !maps.Equal(got.Headers, c.want) {
			t.Errorf("%+v: %v, %v", c, got.Headers, got.Err)
		}
	}
}

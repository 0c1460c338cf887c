package policytest

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	jwtv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/jwt_authn/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	security "istio.io/api/security/v1beta1"

	"github.com/portolan-mesh/portolan/storage/keyset"
	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/envoy/message"
	"github.com/portolan-mesh/portolan/xds/generate/policy"
	meshpolicy "github.com/portolan-mesh/portolan/xds/mesh/policy"
)

// Echo is the cluster to which connections that pass go.
const Echo = "echo"

// ListenerOptions describe the listener of a group.
type ListenerOptions struct {
	Name, Host string
	Port       uint32
	// ProxyProtocol reads addresses from a PROXY header.
	ProxyProtocol bool
	// TLS ends the TLS of clients.
	TLS *corev3.TransportSocket
}

// Listener makes a listener that takes TLS and plaintext, with the filters of the group's
// policies. Requests that pass are answered with 200; connections go to Echo.
func (g Group) Listener(o ListenerOptions) *listenerv3.Listener {
	filters := g.http()
	if g.TCP {
		filters = g.tcp()
	}
	return envoy.Listener(envoy.ListenerOptions{
		Name: o.Name, Host: o.Host, Port: o.Port, ProxyProtocol: o.ProxyProtocol, Direction: corev3.TrafficDirection_INBOUND,
		TLSInspector: &envoy.Inspection{},
		FilterChains: []*listenerv3.FilterChain{
			envoy.FilterChain(envoy.FilterChainOptions{Name: "tls", TransportProtocol: "tls", Filters: filters, Transport: o.TLS}),
			envoy.FilterChain(envoy.FilterChainOptions{Name: "plain", TransportProtocol: "raw_buffer", Filters: filters}),
		},
	})
}

// actions are in the order in which they are judged.
func actions() []security.AuthorizationPolicy_Action {
	return []security.AuthorizationPolicy_Action{security.AuthorizationPolicy_AUDIT, security.AuthorizationPolicy_DENY, security.AuthorizationPolicy_ALLOW}
}

// tokens makes the filter that verifies tokens.
func (g Group) tokens() *jwtv3.JwtAuthentication {
	if len(g.Authentications) > 0 {
		return policy.Tokens(meshpolicy.TokenRules(g.Authentications), func(keyset.Source) string { return "" }, false)
	}
	out := policy.Tokens([]*security.JWTRule{{Issuer: "any", Jwks: keySet("SET-A")}}, nil, false)
	for _, p := range out.GetProviders() {
		p.Issuer = ""
	}
	return out
}

func (g Group) http() []*listenerv3.Filter {
	filters := []*hcmv3.HttpFilter{{Name: "tokens", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: message.Pack(g.tokens())}}}
	for _, action := range actions() {
		rules := policy.HTTP(g.Policies, action, policy.Options{TrustDomains: TrustDomains()})
		filters = append(filters, &hcmv3.HttpFilter{Name: action.String(), ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: message.Pack(rules)}})
	}
	return []*listenerv3.Filter{envoy.HTTPConnectionManager(envoy.HTTPOptions{
		StatPrefix: "http", Filters: append(filters, envoy.RouterFilter()),
		RouteConfig: envoy.RouteConfig(envoy.RouteConfigOptions{Name: "passed", VirtualHosts: []*routev3.VirtualHost{
			envoy.VirtualHost(envoy.VirtualHostOptions{Name: "passed", Domains: []string{"*"}, Routes: []envoy.RouteOptions{
				{DirectResponse: &envoy.DirectResponse{Status: 200}},
			}}),
		}}),
	})}
}

func (g Group) tcp() []*listenerv3.Filter {
	var out []*listenerv3.Filter
	for _, action := range actions() {
		rules := policy.Network(g.Policies, action, policy.Options{TrustDomains: TrustDomains()})
		out = append(out, &listenerv3.Filter{Name: action.String(), ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: message.Pack(rules)}})
	}
	return append(out, envoy.TCPProxy(envoy.TCPProxyOptions{StatPrefix: "tcp", Clusters: []envoy.WeightedCluster{{Name: Echo, Weight: 1}}}))
}

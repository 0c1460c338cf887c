package envoy

import (
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	rbacconfigv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	httpwasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/wasm/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	networkrbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	networkwasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/wasm/v3"
	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/xds/envoy/message"
)

// GuardFilter makes an HTTP filter whose configuration comes over ADS by its name (ECDS), in a
// message like content. The proxy uses the listener once it has that. If it has waited too long for
// it, it refuses all requests.
func GuardFilter(name string, content proto.Message) *hcmv3.HttpFilter {
	return &hcmv3.HttpFilter{Name: name, ConfigType: &hcmv3.HttpFilter_ConfigDiscovery{
		ConfigDiscovery: discovered(content, RefuseRequests()),
	}}
}

// ConnectionGuardFilter is GuardFilter for the connections of a filter chain.
func ConnectionGuardFilter(name string, content proto.Message) *listenerv3.Filter {
	return &listenerv3.Filter{Name: name, ConfigType: &listenerv3.Filter_ConfigDiscovery{
		ConfigDiscovery: discovered(content, RefuseConnections()),
	}}
}

// PluginFilter makes the HTTP filter of a Wasm plugin, whose configuration comes over ADS by its name
// (ECDS): the plugin or, without its module, a filter that lets everything pass or refuses it. open
// says which of these the proxy uses while it has no configuration that works.
func PluginFilter(name string, open bool) *hcmv3.HttpFilter {
	return &hcmv3.HttpFilter{Name: name, ConfigType: &hcmv3.HttpFilter_ConfigDiscovery{
		ConfigDiscovery: discovered(&httpwasmv3.Wasm{}, WithoutPlugin(false, open)),
	}}
}

// ConnectionPluginFilter is PluginFilter for the connections of a filter chain.
func ConnectionPluginFilter(name string, open bool) *listenerv3.Filter {
	return &listenerv3.Filter{Name: name, ConfigType: &listenerv3.Filter_ConfigDiscovery{
		ConfigDiscovery: discovered(&networkwasmv3.Wasm{}, WithoutPlugin(true, open)),
	}}
}

// WithoutPlugin makes what stands in the place of a plugin that cannot run: a filter that lets
// everything pass, or refuses it.
func WithoutPlugin(network, open bool) proto.Message {
	switch {
	case network && open:
		return &networkrbacv3.RBAC{StatPrefix: TCPRBACStatPrefix}
	case network:
		return RefuseConnections()
	case open:
		return &httprbacv3.RBAC{}
	}
	return RefuseRequests()
}

// RefuseRequests makes a filter that refuses all requests.
func RefuseRequests() *httprbacv3.RBAC { return &httprbacv3.RBAC{Rules: &rbacconfigv3.RBAC{}} }

// RefuseConnections makes a filter that closes all connections.
func RefuseConnections() *networkrbacv3.RBAC {
	return &networkrbacv3.RBAC{Rules: &rbacconfigv3.RBAC{}, StatPrefix: TCPRBACStatPrefix}
}

// TCPRBACStatPrefix begins the names of the statistics about the RBAC of connections. (Istio: authzmodel.RBACTCPFilterStatPrefix.)
const TCPRBACStatPrefix = "tcp."

// discovered takes a configuration of the type of content from ADS. Until then it is otherwise,
// which the proxy takes only if that type is accepted, too.
func discovered(content, otherwise proto.Message) *corev3.ExtensionConfigSource {
	out := &corev3.ExtensionConfigSource{ConfigSource: message.ADS(), DefaultConfig: message.Pack(otherwise)}
	for _, m := range []proto.Message{content, otherwise} {
		if url := message.Pack(m).GetTypeUrl(); !slices.Contains(out.TypeUrls, url) {
			out.TypeUrls = append(out.TypeUrls, url)
		}
	}
	return out
}

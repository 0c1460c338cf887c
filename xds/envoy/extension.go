package envoy

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	rbacconfigv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	networkrbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/xds/envoy/message"
)

// GuardFilter makes an HTTP filter whose configuration comes over ADS by its name (ECDS), an RBAC.
// The proxy uses the listener once it has that. If it has waited too long for it, it refuses all
// requests.
func GuardFilter(name string) *hcmv3.HttpFilter {
	return &hcmv3.HttpFilter{Name: name, ConfigType: &hcmv3.HttpFilter_ConfigDiscovery{
		ConfigDiscovery: discovered(&httprbacv3.RBAC{Rules: &rbacconfigv3.RBAC{}}),
	}}
}

// ConnectionGuardFilter is GuardFilter for the connections of a filter chain.
func ConnectionGuardFilter(name string) *listenerv3.Filter {
	return &listenerv3.Filter{Name: name, ConfigType: &listenerv3.Filter_ConfigDiscovery{
		ConfigDiscovery: discovered(&networkrbacv3.RBAC{Rules: &rbacconfigv3.RBAC{}, StatPrefix: TCPRBACStatPrefix}),
	}}
}

// TCPRBACStatPrefix begins the names of the statistics about the RBAC of connections. (Istio: authzmodel.RBACTCPFilterStatPrefix.)
const TCPRBACStatPrefix = "tcp."

func discovered(otherwise proto.Message) *corev3.ExtensionConfigSource {
	config := message.Pack(otherwise)
	return &corev3.ExtensionConfigSource{ConfigSource: message.ADS(), DefaultConfig: config, TypeUrls: []string{config.GetTypeUrl()}}
}

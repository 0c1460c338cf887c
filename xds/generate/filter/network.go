package filter

import (
	"cmp"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	extensions "istio.io/api/extensions/v1alpha1"

	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/generate/policy"
	"github.com/portolan-mesh/portolan/xds/generate/wasmplugin"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/names"
)

// Network returns the network filters of a filter chain, in the order in which the bytes of a
// connection pass them. The order is Istio's: external authorization, RBAC, statistics, what
// resolves the SNI name, and last what takes the bytes: the manager of HTTP connections, or the
// TCP proxy. WasmPlugins of type NETWORK stand before RBAC or behind it, by their phase. EnvoyFilters insert theirs relative to these.
func Network(v *mesh.View, k Kind, o NetworkOptions, last *listenerv3.Filter) []*listenerv3.Filter {
	var out []*listenerv3.Filter
	plugins := &wasmplugin.Plugins{}
	if !o.QUIC {
		plugins = k.plugins(v, true, o.Port)
	}
	if k.guarded() && last.GetName() != envoy.HTTPConnectionManagerName {
		for slot := range policy.TCPSlots() {
			if slot.Name == names.TCPAudit {
				out = append(out, plugins.Network(extensions.PluginPhase_AUTHZ)...)
			}
			out = append(out, envoy.ConnectionGuardFilter(slot.Name, slot.Accepts()))
		}
	}
	out = append(out, plugins.Network(lastPhase)...)
	if o.ResolveSNI != 0 {
		out = append(out, envoy.SNIDynamicDNSFilter(DNSFamily(v.Shape()), uint32(o.ResolveSNI)))
	}
	return append(out, last)
}

// TCPProxy makes the filter that forwards the connections of a chain. A rule's idle timeout outranks
// that of the proxy. Its access logs are those of the kind of listener.
func TCPProxy(v *mesh.View, k Kind, o envoy.TCPProxyOptions) *listenerv3.Filter {
	o.AccessLogs, o.LogOpened = connectionLogs(v, k)
	o.IdleTimeout = cmp.Or(o.IdleTimeout, v.ProxyConfig().IdleTimeout())
	return envoy.TCPProxy(o)
}

// NetworkOptions describe one filter chain.
type NetworkOptions struct {
	// ResolveSNI is the port of the hosts that the proxy resolves from the SNI names of
	// connections, 0 if it resolves none.
	ResolveSNI int
	// Port is that of Options.
	Port int
	// QUIC: the connections are those of HTTP/3, whose bytes no filter sees.
	QUIC bool
}

// Package envoytest reads back the messages that package envoy makes, and compares them.
package envoytest

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	dnsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/dns/v3"
	dynamicclusterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/dynamic_forward_proxy/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpproxyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/xds/envoy/upstream"
)

// ClusterTypeOf returns the type of a cluster that upstream.Cluster made.
func ClusterTypeOf(c *clusterv3.Cluster) upstream.ClusterType {
	if custom := c.GetClusterType(); custom != nil {
		if custom.GetTypedConfig().MessageIs(&dynamicclusterv3.ClusterConfig{}) {
			return upstream.DynamicDNS
		}
		var dns dnsv3.DnsCluster
		if err := custom.GetTypedConfig().UnmarshalTo(&dns); err == nil && dns.GetAllAddressesInSingleEndpoint() {
			return upstream.LogicalDNS
		}
		return upstream.StrictDNS
	}
	switch c.GetType() {
	case clusterv3.Cluster_EDS:
		return upstream.EDS
	case clusterv3.Cluster_ORIGINAL_DST:
		return upstream.OriginalDst
	case clusterv3.Cluster_STRICT_DNS:
		return upstream.StrictDNS
	case clusterv3.Cluster_LOGICAL_DNS:
		return upstream.LogicalDNS
	default:
		return upstream.Static
	}
}

// HTTPConnectionManagerOf returns the HTTP connection manager of a filter chain, nil if
// it has none.
func HTTPConnectionManagerOf(chain *listenerv3.FilterChain) *hcmv3.HttpConnectionManager {
	out := &hcmv3.HttpConnectionManager{}
	if !unpack(chain, out) {
		return nil
	}
	return out
}

// TCPProxyOf returns the TCP proxy of a filter chain, nil if it has none.
func TCPProxyOf(chain *listenerv3.FilterChain) *tcpproxyv3.TcpProxy {
	out := &tcpproxyv3.TcpProxy{}
	if !unpack(chain, out) {
		return nil
	}
	return out
}

// RouteConfigNameOf is the name of the routes that a filter chain gets over ADS, empty
// for none.
func RouteConfigNameOf(chain *listenerv3.FilterChain) string {
	return HTTPConnectionManagerOf(chain).GetRds().GetRouteConfigName()
}

// unpack decodes into out the first filter whose configuration has out's type.
func unpack(chain *listenerv3.FilterChain, out proto.Message) bool {
	for _, f := range chain.GetFilters() {
		if f.GetTypedConfig().MessageIs(out) {
			return f.GetTypedConfig().UnmarshalTo(out) == nil
		}
	}
	return false
}

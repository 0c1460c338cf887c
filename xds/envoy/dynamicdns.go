package envoy

import (
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	dynamichttpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/dynamic_forward_proxy/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	snidynamicv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/sni_dynamic_forward_proxy/v3"

	"github.com/portolan-mesh/portolan/xds/envoy/upstream"
)

// DynamicDNSFilterName is the HTTP filter that resolves the hosts of requests.
// SNIDynamicDNSFilterName is the network filter that resolves the SNI names of TLS
// connections.
const (
	DynamicDNSFilterName    = "envoy.filters.http.dynamic_forward_proxy"
	SNIDynamicDNSFilterName = "envoy.filters.network.sni_dynamic_forward_proxy"
)

// DynamicDNSFilter makes the filter that resolves a request's host if the route leads to
// a DynamicDNS cluster of the same family.
func DynamicDNSFilter(family upstream.DNSFamily) *hcmv3.HttpFilter {
	return httpFilter(DynamicDNSFilterName, &dynamichttpv3.FilterConfig{
		ImplementationSpecifier: &dynamichttpv3.FilterConfig_DnsCacheConfig{DnsCacheConfig: upstream.DNSCache(family)},
	})
}

// SNIDynamicDNSFilter makes the filter that resolves the SNI name of a TLS connection, if
// the TCP proxy after it leads to a DynamicDNS cluster of the same family. Connections go
// to the given port. The listener needs a TLSInspector.
func SNIDynamicDNSFilter(family upstream.DNSFamily, port uint32) *listenerv3.Filter {
	return networkFilter(SNIDynamicDNSFilterName, &snidynamicv3.FilterConfig{
		DnsCacheConfig: upstream.DNSCache(family), PortSpecifier: &snidynamicv3.FilterConfig_PortValue{PortValue: port},
	})
}

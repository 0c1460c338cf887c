package envoy

import (
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	dynamicclusterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/dynamic_forward_proxy/v3"
	dynamicdnsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/dynamic_forward_proxy/v3"
	dynamichttpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/dynamic_forward_proxy/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	snidynamicv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/sni_dynamic_forward_proxy/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/portolan-mesh/portolan/xds/envoy/message"
)

// DynamicDNSFilterName is the HTTP filter that resolves the hosts of requests.
// SNIDynamicDNSFilterName is the network filter that resolves the SNI names of TLS
// connections.
const (
	DynamicDNSFilterName    = "envoy.filters.http.dynamic_forward_proxy"
	SNIDynamicDNSFilterName = "envoy.filters.network.sni_dynamic_forward_proxy"
)

const dynamicDNSClusterType = "envoy.clusters.dynamic_forward_proxy"

// The settings of DNS caches. An Envoy refuses two caches with the same name and
// different settings, so a change here needs new names.
// https://github.com/envoyproxy/envoy/issues/38545
const (
	dnsCacheRefreshRate = time.Minute // of names that are not resolved yet
	dnsCacheHosts       = 8192
)

// dnsCache makes the cache of resolved names that all dynamic DNS clusters and filters of
// a proxy share. The family decides its settings, and so its name. If a name was not
// found, the next request asks again.
func dnsCache(family DNSFamily) *dynamicdnsv3.DnsCacheConfig {
	name, of := "dynamic_dns_v4", clusterv3.Cluster_V4_ONLY
	switch family {
	case DNSv6Only:
		name, of = "dynamic_dns_v6", clusterv3.Cluster_V6_ONLY
	case DNSAll:
		name, of = "dynamic_dns_all", clusterv3.Cluster_ALL
	}
	return &dynamicdnsv3.DnsCacheConfig{
		Name: name, DnsLookupFamily: of, DnsRefreshRate: message.Seconds(dnsCacheRefreshRate),
		MaxHosts: wrapperspb.UInt32(dnsCacheHosts), DisableDnsRefreshOnFailure: true,
	}
}

// DynamicDNSFilter makes the filter that resolves a request's host if the route leads to
// a DynamicDNS cluster of the same family.
func DynamicDNSFilter(family DNSFamily) *hcmv3.HttpFilter {
	return httpFilter(DynamicDNSFilterName, &dynamichttpv3.FilterConfig{
		ImplementationSpecifier: &dynamichttpv3.FilterConfig_DnsCacheConfig{DnsCacheConfig: dnsCache(family)},
	})
}

// SNIDynamicDNSFilter makes the filter that resolves the SNI name of a TLS connection, if
// the TCP proxy after it leads to a DynamicDNS cluster of the same family. Connections go
// to the given port. The listener needs a TLSInspector.
func SNIDynamicDNSFilter(family DNSFamily, port uint32) *listenerv3.Filter {
	return networkFilter(SNIDynamicDNSFilterName, &snidynamicv3.FilterConfig{
		DnsCacheConfig: dnsCache(family), PortSpecifier: &snidynamicv3.FilterConfig_PortValue{PortValue: port},
	})
}

// dynamicDNS makes the type of a cluster whose endpoint is the host of each request.
// unverified says that the server's certificate is not verified for that host; Envoy must
// be told so.
func dynamicDNS(family DNSFamily, unverified bool) *clusterv3.Cluster_ClusterType {
	return &clusterv3.Cluster_ClusterType{ClusterType: &clusterv3.Cluster_CustomClusterType{
		Name: dynamicDNSClusterType,
		TypedConfig: message.Pack(&dynamicclusterv3.ClusterConfig{
			ClusterImplementationSpecifier: &dynamicclusterv3.ClusterConfig_DnsCacheConfig{DnsCacheConfig: dnsCache(family)},
			AllowInsecureClusterOptions:    unverified,
		}),
	}}
}

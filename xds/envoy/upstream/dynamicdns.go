package upstream

import (
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	dynamicclusterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/dynamic_forward_proxy/v3"
	dynamicdnsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/dynamic_forward_proxy/v3"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/portolan-mesh/portolan/xds/envoy/message"
)

const dynamicDNSClusterType = "envoy.clusters.dynamic_forward_proxy"

// The settings of DNS caches. An Envoy refuses two caches with the same name and
// different settings, so a change here needs new names.
// https://github.com/envoyproxy/envoy/issues/38545
const (
	dnsCacheRefreshRate = time.Minute // of names that are not resolved yet
	dnsCacheHosts       = 8192
)

// DNSCache makes the cache of resolved names that all dynamic DNS clusters and filters of
// a proxy share. The family decides its settings, and so its name. If a name was not
// found, the next request asks again.
func DNSCache(family DNSFamily) *dynamicdnsv3.DnsCacheConfig {
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

// dynamicDNS makes the type of a cluster whose endpoint is the host of each request.
// unverified says that the server's certificate is not verified for that host; Envoy must
// be told so.
func dynamicDNS(family DNSFamily, unverified bool) *clusterv3.Cluster_ClusterType {
	return &clusterv3.Cluster_ClusterType{ClusterType: &clusterv3.Cluster_CustomClusterType{
		Name: dynamicDNSClusterType,
		TypedConfig: message.Pack(&dynamicclusterv3.ClusterConfig{
			ClusterImplementationSpecifier: &dynamicclusterv3.ClusterConfig_DnsCacheConfig{DnsCacheConfig: DNSCache(family)},
			AllowInsecureClusterOptions:    unverified,
		}),
	}}
}

package simulate

import (
	"cmp"
	"net"
	"strconv"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	dynamicclusterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/dynamic_forward_proxy/v3"
)

// ResolvesHosts says whether a cluster forwards to the host that clients name.
func ResolvesHosts(c *clusterv3.Cluster) bool {
	return c.GetClusterType().GetTypedConfig().MessageIs(&dynamicclusterv3.ClusterConfig{})
}

// resolve sets the endpoint of destinations that resolve a request's host. It is the host
// to which the destination or the route rewrites it, else the client's.
func (p *Proxy) resolve(authority string, result *Result) {
	for i, d := range result.Destinations {
		p.resolveTo(endpointOf(cmp.Or(d.Host, authority)), result.Destinations[i:i+1])
	}
}

// endpointOf is the address of an authority. Without a port it is plaintext HTTP's.
func endpointOf(authority string) string {
	host, port, err := net.SplitHostPort(authority)
	if _, numeric := strconv.ParseUint(port, 10, 16); err != nil || numeric != nil {
		host, port = strings.Trim(authority, "[]"), "80"
	}
	return net.JoinHostPort(host, port)
}

// resolveTo sets the endpoint of those destinations that resolve hosts.
func (p *Proxy) resolveTo(endpoint string, destinations []Destination) {
	for i, d := range destinations {
		if ResolvesHosts(p.clusters[d.Cluster]) {
			destinations[i].Endpoints = []string{endpoint}
		}
	}
}

package listener

import (
	"cmp"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
)

func inboundNames(v *mesh.View, yield func(string) bool) bool {
	for _, l := range v.Ingress() {
		if !yield(inboundName(v, l)) {
			return false
		}
	}
	return true
}

func inboundName(v *mesh.View, l *networking.IstioIngressListener) string {
	return envoy.ListenerName(inboundBind(v, l), l.GetPort().GetNumber())
}

// inboundBind is the address of an ingress listener: the one it names, else the
// first of the workload.
func inboundBind(v *mesh.View, l *networking.IstioIngressListener) string {
	if l.GetBind() != "" {
		return l.GetBind()
	}
	return cmp.Or(v.InstanceIP(false), v.InstanceIP(true))
}

// inbound makes the listener of an ingress port, which forwards everything to
// the application.
func inbound(v *mesh.View, name string, l *networking.IstioIngressListener) (*resource.Resource, error) {
	protocol := discovery.ParseProtocol(l.GetPort().GetProtocol())
	if !protocol.IsServed() {
		return nil, nil
	}
	port := l.GetPort().GetNumber()
	filter := envoy.TCPProxy(envoy.TCPProxyOptions{
		StatPrefix: envoy.InboundClusterName(port),
		Clusters:   []envoy.WeightedCluster{{Name: envoy.InboundClusterName(port)}},
		AccessLogs: accessLogs(v, false),
	})
	if protocol.IsHTTP() {
		filter = envoy.HTTPConnectionManager(envoy.HTTPOptions{
			StatPrefix:  envoy.HTTPStatPrefix(envoy.Inbound, name),
			RouteConfig: inboundRoutes(port),
			ServerName:  envoy.ServerName,
			AccessLogs:  accessLogs(v, false),
		})
	}
	return resource.New(name, envoy.Listener(envoy.ListenerOptions{
		Name: name, Host: inboundBind(v, l), Port: port,
		Direction:    corev3.TrafficDirection_INBOUND,
		AccessLogs:   accessLogs(v, true),
		FilterChains: []*listenerv3.FilterChain{envoy.FilterChain(envoy.FilterChainOptions{Filters: []*listenerv3.Filter{filter}})},
	}))
}

// inboundRoutes send every request to the application, without a timeout and
// without a retry.
func inboundRoutes(port uint32) *routev3.RouteConfiguration {
	cluster := envoy.InboundClusterName(port)
	route := envoy.Route(envoy.RouteOptions{
		Forward: &envoy.Forward{Clusters: []envoy.WeightedCluster{{Name: cluster}}},
	})
	return envoy.RouteConfig(envoy.RouteConfigOptions{
		Name: cluster,
		VirtualHosts: []*routev3.VirtualHost{envoy.VirtualHost(envoy.VirtualHostOptions{
			Name: envoy.InboundVirtualHostName(port), Domains: []string{"*"}, Routes: []*routev3.Route{route},
		})},
	})
}

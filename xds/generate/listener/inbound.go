package listener

import (
	"cmp"
	"iter"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// Inbound makes the listeners that take what comes to the application beside a
// sidecar. They are its workload's own.
type Inbound struct{}

var _ generate.Generator = Inbound{}

// TypeURL implements generate.Generator.
func (Inbound) TypeURL() string { return TypeURL }

// Affected implements generate.Generator.
func (Inbound) Affected(v *mesh.View, _ mesh.Delta) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, l := range v.Ingress() {
			if !yield(inboundName(v, l)) {
				return
			}
		}
	}
}

// Build implements generate.Generator.
func (Inbound) Build(v *mesh.View, name string) (*resource.Resource, error) {
	for _, l := range v.Ingress() {
		if inboundName(v, l) == name {
			return inbound(v, name, l)
		}
	}
	return nil, nil
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

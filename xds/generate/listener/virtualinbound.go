package listener

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/generate/workload"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// virtualInbound makes the listener to which all is redirected that comes to the
// workload. The port that the client meant tells which of its chains takes it;
// what is for no known port passes unchanged. (Istio: virtualInbound.)
func virtualInbound(v *mesh.View) (*resource.Resource, error) {
	port := uint32(v.Mesh().GetProxyInboundListenPort())
	tproxy := v.Shape().Interception == discovery.InterceptionTproxy
	options := envoy.ListenerOptions{
		Name: envoy.VirtualInboundListenerName, Host: wildcard(v.Shape()), MoreHosts: moreWildcards(v.Shape()), Port: port,
		OriginalDst: true, OriginalSrc: tproxy, Transparent: tproxy,
		Direction:     corev3.TrafficDirection_INBOUND,
		AccessLogs:    accessLogs(v, true),
		HTTPInspector: true, DetectionTimeout: detectionTimeout(v), Uninspected: []uint32{port},
		FilterChains: append([]*listenerv3.FilterChain{blackHoleChain(v, envoy.VirtualInboundBlackHoleName, port)}, passInbound(v)...),
	}
	refs := []string{envoy.BlackHoleClusterName, envoy.InboundPassthroughClusterName}
	for _, p := range workload.Ports(v) {
		if !p.Captured(v.Shape()) || !p.Protocol.IsServed() || p.Number == int(port) {
			continue
		}
		if p.Protocol != discovery.Unsupported {
			options.Uninspected = append(options.Uninspected, uint32(p.Number))
		}
		options.FilterChains = append(options.FilterChains, inboundChains(v, p)...)
		refs = append(refs, clusterOf(p))
	}
	return made(options, nil, refs)
}

// passInbound are the chains of what is for no known port: of HTTP, and of all
// else.
func passInbound(v *mesh.View) []*listenerv3.FilterChain {
	cluster := envoy.InboundPassthroughClusterName
	return []*listenerv3.FilterChain{
		detectedChain(envoy.VirtualInboundCatchAllName, 0, envoy.HTTPConnectionManager(envoy.HTTPOptions{
			StatPrefix:      envoy.AltStatName(cluster),
			RouteConfig:     inboundRoutes(cluster, 0),
			ServerName:      envoy.ServerName,
			ForwardIdentity: true,
			AccessLogs:      accessLogs(v, false),
		})),
		undetectedChain(envoy.VirtualInboundListenerName, 0, envoy.TCPProxy(envoy.TCPProxyOptions{
			StatPrefix: cluster,
			Clusters:   []envoy.WeightedCluster{{Name: cluster}},
			AccessLogs: accessLogs(v, false),
		})),
	}
}

// inboundChains are those of a port: one, unless its protocol is not declared.
func inboundChains(v *mesh.View, p workload.Port) []*listenerv3.FilterChain {
	name, port := envoy.ListenerName(wildcard(v.Shape()), uint32(p.Number)), uint32(p.Number)
	switch {
	case p.Protocol.IsHTTP():
		return []*listenerv3.FilterChain{portChain(name, port, inboundHTTP(v, name, p))}
	case p.Protocol == discovery.Unsupported:
		return []*listenerv3.FilterChain{
			detectedChain(name, port, inboundHTTP(v, name, p)),
			undetectedChain(name, port, inboundTCP(v, p)),
		}
	}
	return []*listenerv3.FilterChain{portChain(name, port, inboundTCP(v, p))}
}

// portChain takes all connections that are meant for a port.
func portChain(name string, port uint32, filter *listenerv3.Filter) *listenerv3.FilterChain {
	return envoy.FilterChain(envoy.FilterChainOptions{
		Name: name, DestinationPort: port, Filters: []*listenerv3.Filter{filter},
	})
}

// detectedChain takes those to a port, 0 for any that has no chain, in which
// plaintext HTTP was found.
func detectedChain(name string, port uint32, filter *listenerv3.Filter) *listenerv3.FilterChain {
	return envoy.FilterChain(envoy.FilterChainOptions{
		Name: name, DestinationPort: port,
		TransportProtocol: envoy.TransportRaw, ApplicationProtocols: envoy.PlaintextHTTP(),
		Filters: []*listenerv3.Filter{filter},
	})
}

// undetectedChain takes those in which it was not.
func undetectedChain(name string, port uint32, filter *listenerv3.Filter) *listenerv3.FilterChain {
	return envoy.FilterChain(envoy.FilterChainOptions{
		Name: name, DestinationPort: port, TransportProtocol: envoy.TransportRaw,
		Filters: []*listenerv3.Filter{filter},
	})
}

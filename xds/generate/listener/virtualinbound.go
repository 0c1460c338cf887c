package listener

import (
	"cmp"
	"net/netip"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/generate/filter"
	"github.com/portolan-mesh/portolan/xds/generate/workload"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/names"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// virtualInbound makes the listener to which all incoming connections are redirected. The
// original destination port selects the filter chain. Connections to unknown ports pass
// unchanged. (Istio: virtualInbound.)
func virtualInbound(v *mesh.View) (proto.Message, []resource.Need, error) {
	port := uint32(v.Mesh(mesh.ProxyInboundListenPort).GetProxyInboundListenPort())
	tproxy := v.Shape().Interception == discovery.InterceptionTproxy
	options := envoy.ListenerOptions{
		Name: names.VirtualInboundListener, Host: v.Shape().Wildcard(), MoreHosts: moreWildcards(v.Shape()), Port: port,
		OriginalDst: true, OriginalSrc: tproxy, Transparent: tproxy,
		Direction:     corev3.TrafficDirection_INBOUND,
		AccessLogs:    filter.ListenerAccessLogs(v),
		HTTPInspector: true, DetectionTimeout: detectionTimeout(v), Uninspected: []uint32{port},
		FilterChains: append([]*listenerv3.FilterChain{blackHoleChain(v, filter.SidecarInbound, names.VirtualInboundBlackHole, port)}, passInbound(v)...),
	}
	refs := []string{names.BlackHoleCluster, names.InboundPassthroughCluster}
	var all []way
	for _, p := range workload.Ports(v) {
		if !p.Captured(v.Shape()) || !p.Protocol.IsServed() || p.Number == int(port) {
			continue
		}
		if p.Protocol != discovery.Unsupported {
			options.Uninspected = append(options.Uninspected, uint32(p.Number))
		}
		ways := waysInto(v, p)
		if len(ways) == 0 {
			options.FilterChains = append(options.FilterChains, toAddress(p, blackHoleChain(v, filter.SidecarInbound, chainName(v, p), uint32(p.Number))))
			continue
		}
		for _, w := range ways {
			options.FilterChains = append(options.FilterChains, inboundChains(v, p, w)...)
		}
		all = append(all, ways...)
		refs = append(refs, p.Cluster())
	}
	message, needs, err := build(options, nil, refs)
	return message, append(needsOf(all), needs...), err
}

// passInbound returns the chains for unknown ports: one for HTTP, one for everything
// else.
func passInbound(v *mesh.View) []*listenerv3.FilterChain {
	cluster := names.InboundPassthroughCluster
	w := plaintext()
	return []*listenerv3.FilterChain{
		w.chain(v, envoy.FilterChainOptions{Name: names.VirtualInboundCatchAll}, w.http, filter.Manager(v, filter.SidecarInbound, filter.Options{
			StatPrefix: names.AltStat(cluster), RouteConfig: inboundRoutes(cluster, 0, true),
		})),
		w.chain(v, envoy.FilterChainOptions{Name: names.VirtualInboundListener}, w.bytes, envoy.TCPProxy(envoy.TCPProxyOptions{
			StatPrefix: cluster,
			Clusters:   []envoy.WeightedCluster{{Name: cluster}},
			AccessLogs: filter.AccessLogs(v),
		})),
	}
}

// inboundChains returns the chains of a way into a port: one, or two if the port's protocol is
// not declared.
func inboundChains(v *mesh.View, p workload.Port, w way) []*listenerv3.FilterChain {
	o := envoy.FilterChainOptions{Name: chainName(v, p), DestinationPort: uint32(p.Number)}
	switch {
	case p.Protocol.IsHTTP():
		return []*listenerv3.FilterChain{toAddress(p, w.chain(v, o, w.any, inboundHTTP(v, o.Name, p)))}
	case p.Protocol == discovery.Unsupported:
		return []*listenerv3.FilterChain{
			toAddress(p, w.chain(v, o, w.http, inboundHTTP(v, o.Name, p))),
			toAddress(p, w.chain(v, o, w.bytes, inboundTCP(v, p))),
		}
	}
	return []*listenerv3.FilterChain{toAddress(p, w.chain(v, o, w.any, inboundTCP(v, p)))}
}

func chainName(v *mesh.View, p workload.Port) string {
	return names.Listener(cmp.Or(p.Beside, v.Shape().Wildcard()), uint32(p.Number))
}

// toAddress limits a chain to the address of an ingress listener whose port another has, too.
// That one takes connections to all other addresses.
func toAddress(p workload.Port, chain *listenerv3.FilterChain) *listenerv3.FilterChain {
	if ip, err := netip.ParseAddr(p.Beside); err == nil {
		chain.FilterChainMatch.PrefixRanges = []*corev3.CidrRange{{AddressPrefix: ip.Unmap().String(), PrefixLen: wrapperspb.UInt32(uint32(ip.Unmap().BitLen()))}}
	}
	return chain
}

package listener

import (
	"cmp"
	"net/netip"
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/generate/filter"
	"github.com/portolan-mesh/portolan/xds/generate/policy"
	"github.com/portolan-mesh/portolan/xds/generate/workload"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/names"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// virtualInbound makes the listener to which all incoming connections are redirected. The
// original destination port selects the filter chain. Connections to unknown ports pass to the
// application. (Istio: virtualInbound.)
func virtualInbound(v *mesh.View) (proto.Message, []resource.Need, error) {
	port := uint32(v.Mesh(mesh.ProxyInboundListenPort).GetProxyInboundListenPort())
	tproxy := v.Shape().Interception == discovery.InterceptionTproxy
	in := inboundChains{view: v, refs: []string{names.BlackHoleCluster, names.InboundPassthroughCluster}}
	in.http.Except = []uint32{port}
	in.list = []*listenerv3.FilterChain{blackHoleChain(v, filter.SidecarInbound, names.VirtualInboundBlackHole, port)}
	in.pass(0)
	known := map[int]bool{int(port): true}
	for _, p := range workload.Ports(v) {
		if p.Captured(v.Shape()) && p.Protocol.IsServed() && p.Number != int(port) {
			in.add(p)
		}
		known[p.Number] = true
	}
	for _, number := range workload.NamedPorts(v) {
		if !known[number] {
			in.pass(number)
		}
	}
	message, needs, err := build(v, filter.SidecarInbound, envoy.ListenerOptions{
		Name: names.VirtualInboundListener, Host: v.Shape().Wildcard(), MoreHosts: moreWildcards(v.Shape()), Port: port,
		OriginalDst: true, OriginalSrc: tproxy, Transparent: tproxy,
		Direction:     corev3.TrafficDirection_INBOUND,
		AccessLogs:    filter.ListenerAccessLogs(v, filter.SidecarInbound),
		HTTPInspector: &in.http, TLSInspector: in.tls(port), DetectionTimeout: detectionTimeout(v),
		FilterChains: in.list,
	}, nil, in.refs)
	http, _ := carry(in.ways)
	return message, append(append(needsOf(in.ways), policy.Needs(http, true)...), needs...), err
}

// inboundChains collects the filter chains of virtualInbound.
type inboundChains struct {
	view *mesh.View
	list []*listenerv3.FilterChain
	ways []way // all of them
	refs []string
	// http are the ports that are searched for HTTP. encrypted and plain are those with a
	// way for TLS and those without; passes says that unknown ports have one.
	http             envoy.Inspection
	encrypted, plain []uint32
	passes           bool
}

// tls returns the ports on which a client may begin TLS; nil for none.
func (in *inboundChains) tls(own uint32) *envoy.Inspection {
	switch {
	case in.passes:
		return &envoy.Inspection{Except: append([]uint32{own}, slices.DeleteFunc(in.plain, func(port uint32) bool { return slices.Contains(in.encrypted, port) })...)}
	case len(in.encrypted) > 0:
		return &envoy.Inspection{Only: in.encrypted}
	}
	return nil
}

// inspect records whether a port has ways for TLS.
func (in *inboundChains) inspect(port uint32, ways []way) {
	in.ways = append(in.ways, ways...)
	if inspectsTLS(ways) {
		in.encrypted = append(in.encrypted, port)
	} else {
		in.plain = append(in.plain, port)
	}
}

// pass adds the chains of a port that the workload serves for no service; 0 stands for all that
// have none of their own. They pass connections on as they are meant.
func (in *inboundChains) pass(port int) {
	cluster := names.InboundPassthroughCluster
	ways := waysOf(in.view, workload.Mode(in.view, port), carriesEither)
	o := envoy.FilterChainOptions{DestinationPort: uint32(port)}
	if len(ways) == 0 {
		in.list = append(in.list, blackHoleChain(in.view, filter.SidecarInbound, names.VirtualInboundListener, uint32(port)))
	}
	for _, w := range ways {
		last := filter.TCPProxy(in.view, filter.SidecarInbound, envoy.TCPProxyOptions{
			StatPrefix: cluster,
			Clusters:   []envoy.WeightedCluster{{Name: cluster}},
		})
		if o.Name = names.VirtualInboundListener; w.http {
			o.Name = names.VirtualInboundCatchAll
			last = filter.Manager(in.view, filter.SidecarInbound, filter.Options{
				Port: port, StatPrefix: names.AltStat(cluster), RouteConfig: inboundRoutes(in.view, cluster, 0, true),
			})
		}
		in.list = append(in.list, w.chain(in.view, port, o, last))
	}
	if port != 0 {
		in.inspect(uint32(port), ways)
		return
	}
	in.ways, in.passes = append(in.ways, ways...), inspectsTLS(ways)
}

// add adds the chains of a port that the workload serves.
func (in *inboundChains) add(p workload.Port) {
	if p.Protocol != discovery.Unsupported {
		in.http.Except = append(in.http.Except, uint32(p.Number))
	}
	ways, name := waysInto(in.view, p), chainName(in.view, p)
	in.inspect(uint32(p.Number), ways)
	if len(ways) == 0 {
		in.list = append(in.list, toAddress(p, blackHoleChain(in.view, filter.SidecarInbound, name, uint32(p.Number))))
		return
	}
	for _, w := range ways {
		o := envoy.FilterChainOptions{Name: name, DestinationPort: uint32(p.Number)}
		in.list = append(in.list, toAddress(p, w.chain(in.view, p.Number, o, w.last(in.view, name, p))))
	}
	in.refs = append(in.refs, p.Cluster())
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

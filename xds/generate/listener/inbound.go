package listener

import (
	"cmp"
	"iter"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/generate/cluster"
	"github.com/portolan-mesh/portolan/xds/generate/filter"
	"github.com/portolan-mesh/portolan/xds/generate/policy"
	"github.com/portolan-mesh/portolan/xds/generate/workload"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/names"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// Inbound makes the listeners for traffic to a sidecar's own application. They belong to
// its workload alone.
type Inbound struct{}

var _ generate.Generator = Inbound{}

// TypeURL implements generate.Generator.
func (Inbound) TypeURL() string { return resource.ListenerType }

// Affected implements generate.Generator.
func (Inbound) Affected(v *mesh.View, _ mesh.Delta) iter.Seq[string] {
	return func(yield func(string) bool) {
		if v.Shape().Type != discovery.Sidecar || v.Shape().Captures() && !yield(names.VirtualInboundListener) {
			return
		}
		for _, p := range workload.Ports(v) {
			if !p.Captured(v.Shape()) && !yield(inboundName(v, p)) {
				return
			}
		}
	}
}

// Build implements generate.Generator.
func (Inbound) Build(v *mesh.View, name string) (proto.Message, []resource.Need, error) {
	if v.Shape().Type != discovery.Sidecar {
		return nil, nil, nil
	}
	if name == names.VirtualInboundListener && v.Shape().Captures() {
		return virtualInbound(v)
	}
	for _, p := range workload.Ports(v) {
		if !p.Captured(v.Shape()) && inboundName(v, p) == name {
			return inbound(v, name, p)
		}
	}
	return nil, nil, nil
}

func inboundName(v *mesh.View, p workload.Port) string {
	return names.Listener(inboundBind(v, p), uint32(p.Number))
}

// inboundBind is the address of an ingress listener with its own socket: the one it
// names, else the workload's first.
func inboundBind(v *mesh.View, p workload.Port) string {
	return cmp.Or(p.Ingress.GetBind(), v.InstanceIP(false), v.InstanceIP(true))
}

// inbound makes the listener of an ingress port. It forwards everything to the
// application.
func inbound(v *mesh.View, name string, p workload.Port) (proto.Message, []resource.Need, error) {
	if !p.Protocol.IsServed() {
		return nil, nil, nil
	}
	ways := waysInto(v, p)
	if len(ways) == 0 {
		return nil, nil, nil
	}
	options := envoy.ListenerOptions{
		Name: name, Host: inboundBind(v, p), Port: uint32(p.Number),
		Direction:  corev3.TrafficDirection_INBOUND,
		AccessLogs: filter.ListenerAccessLogs(v, filter.SidecarInbound),
	}
	if inspectsTLS(ways) {
		options.TLSInspector, options.DetectionTimeout = &envoy.Inspection{}, detectionTimeout(v)
	}
	for _, w := range ways {
		options.FilterChains = append(options.FilterChains, w.chain(v, p.Number, envoy.FilterChainOptions{}, w.last(v, name, p)))
	}
	message, needs, err := build(v, filter.SidecarInbound, options, nil, []string{p.Cluster()})
	return message, append(append(needsOf(ways), policy.Needs(carry(ways))...), needs...), err
}

// last returns the filter that forwards what comes by a way to the application.
func (w way) last(v *mesh.View, listener string, p workload.Port) *listenerv3.Filter {
	if w.http {
		return inboundHTTP(v, listener, p)
	}
	return inboundTCP(v, p)
}

// inboundTCP forwards the TCP connections of a port to the application.
func inboundTCP(v *mesh.View, p workload.Port) *listenerv3.Filter {
	return filter.TCPProxy(v, filter.SidecarInbound, envoy.TCPProxyOptions{
		StatPrefix: cmp.Or(cluster.InboundStatName(v, p), p.Cluster()),
		Clusters:   []envoy.WeightedCluster{{Name: p.Cluster()}},
	})
}

// inboundHTTP forwards the requests of a port to the application.
func inboundHTTP(v *mesh.View, name string, p workload.Port) *listenerv3.Filter {
	return filter.Manager(v, filter.SidecarInbound, filter.Options{
		StatPrefix: names.HTTPStatPrefix(names.Inbound, name), RouteConfig: inboundRoutes(v, p.Cluster(), p.ServicePort, !p.Protocol.IsGRPC()),
		GRPCWeb: p.Protocol == discovery.GRPCWeb, Port: p.Number,
	})
}

// inboundRoutes sends every request to the application, without timeout. With retry, the
// proxy retries a request if the application closed the connection before it got any of
// it. gRPC clients do so themselves.
func inboundRoutes(v *mesh.View, cluster string, servicePort int, retry bool) *routev3.RouteConfiguration {
	route := envoy.RouteOptions{Forward: &envoy.Forward{Clusters: []envoy.WeightedCluster{{Name: cluster}}}}
	if retry {
		route.Forward.Retry = &envoy.RetryOptions{On: "reset-before-request", SameHost: true}
	}
	return envoy.RouteConfig(envoy.RouteConfigOptions{
		Name: cluster,
		VirtualHosts: []*routev3.VirtualHost{envoy.VirtualHost(envoy.VirtualHostOptions{
			Name: names.InboundVirtualHost(uint32(servicePort)), Domains: []string{"*"}, Routes: []envoy.RouteOptions{route},
			Uncounted: !v.ProxyConfig().CountsAttempts(),
		})},
	})
}

package listener

import (
	"net"
	"slices"
	"strconv"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/generate/filter"
	"github.com/portolan-mesh/portolan/xds/generate/route"
	"github.com/portolan-mesh/portolan/xds/generate/wasmplugin"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/service"
	"github.com/portolan-mesh/portolan/xds/names"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// chains collects the filter chains of an outbound listener. Envoy chooses a chain by the
// destination, then by the first bytes, and never goes back a step. So if HTTP is not
// detected, a connection to the same destination needs its own chain, or the default one.
// https://github.com/envoyproxy/envoy/issues/3471
type chains struct {
	view        *mesh.View
	kind        filter.Kind
	egress      mesh.EgressListener
	name        string
	port        int
	whole       bool // requests name the port that they want
	list        []*listenerv3.FilterChain
	taken       map[claim]bool          // what already has a TCP chain
	rest        *listenerv3.FilterChain // nil for none
	detects     bool                    // an HTTP inspector is needed
	inspectsTLS bool                    // a TLS inspector is needed, for SNI names
	children    []string
	refs        []string
}

// detectHTTP adds the chain for plaintext HTTP that is detected in connections to some
// addresses, or to all.
func (c *chains) detectHTTP(routes string, to []envoy.CIDR) {
	c.detects = true
	c.http(routes, envoy.FilterChainOptions{
		Prefixes: to, TransportProtocol: envoy.TransportRaw, ApplicationProtocols: envoy.PlaintextHTTP(),
	})
}

// http adds an HTTP chain with a route configuration.
func (c *chains) http(routes string, match envoy.FilterChainOptions) {
	match.Filters = filter.Network(c.view, c.kind, filter.NetworkOptions{Port: c.port}, filter.Manager(c.view, filter.SidecarOutbound, filter.Options{
		Port:       c.port,
		StatPrefix: names.HTTPStatPrefix(names.Outbound, c.name), RouteConfigName: routes,
		DynamicDNS: c.view.AllowAnyDynamicDNS() || c.view.PortDynamic(c.dynamicPort()),
	}))
	c.list = append(c.list, envoy.FilterChain(match))
	c.children = append(c.children, routes)
}

// dynamicPort is the port of the services that requests may want, AnyPort if they name
// it.
func (c *chains) dynamicPort() int {
	if c.whole {
		return service.AnyPort
	}
	return c.port
}

// shared is the name of the port's route configuration. routesOf is that for HTTP
// detected at the addresses of a service without a declared protocol.
func (c *chains) shared() string { return route.NameOf(c.egress, c.port) }

func (c *chains) routesOf(s *mesh.ServiceRow) string {
	return names.ServiceRouteConfig(string(s.Hostname), uint32(c.port))
}

// tunnel translates tunnel settings, nil for none.
func tunnel(t *networking.TrafficPolicy_TunnelSettings) *envoy.Tunnel {
	if t == nil {
		return nil
	}
	return &envoy.Tunnel{Target: net.JoinHostPort(t.GetTargetHost(), strconv.Itoa(int(t.GetTargetPort()))), Post: t.GetProtocol() == "POST"}
}

// listener makes the listener from the chains, at the address in o.
func (c *chains) listener(o envoy.ListenerOptions) (proto.Message, []resource.Need, error) {
	o.Name, o.Direction, o.AccessLogs = c.name, corev3.TrafficDirection_OUTBOUND, filter.ListenerAccessLogs(c.view, c.kind)
	if o.FilterChains = c.list; len(o.FilterChains) == 0 {
		o.FilterChains = []*listenerv3.FilterChain{c.rest}
	} else {
		o.DefaultFilterChain = c.rest
	}
	if c.inspectsTLS {
		o.TLSInspector = &envoy.Inspection{}
		o.FilterChains = append(o.FilterChains, tlsTwins(o.FilterChains)...)
	}
	if c.detects {
		o.HTTPInspector, o.DetectionTimeout = &envoy.Inspection{}, detectionTimeout(c.view)
	}
	return build(c.view, c.kind, o, c.children, c.refs)
}

// tlsTwins returns a TLS twin for each chain of plaintext TCP. If the listener inspects
// TLS, the plaintext chains do not match it.
func tlsTwins(chains []*listenerv3.FilterChain) []*listenerv3.FilterChain {
	var out []*listenerv3.FilterChain
	for _, chain := range chains {
		if m := chain.GetFilterChainMatch(); m.GetTransportProtocol() == envoy.TransportRaw && len(m.GetApplicationProtocols()) == 0 {
			twin := proto.CloneOf(chain)
			twin.FilterChainMatch.TransportProtocol = envoy.TransportTLS
			out = append(out, twin)
		}
	}
	return out
}

func detectionTimeout(v *mesh.View) time.Duration {
	return v.Mesh(mesh.ProtocolDetectionTimeout).GetProtocolDetectionTimeout().AsDuration()
}

// build makes a listener of a kind. It must warm with its route configurations, and it sends to its
// clusters, and to those of what it reports to.
func build(v *mesh.View, k filter.Kind, o envoy.ListenerOptions, routes, clusters []string) (proto.Message, []resource.Need, error) {
	clusters = append(clusters, filter.ReportsTo(v, k, slices.ContainsFunc(append(slices.Clip(o.FilterChains), o.DefaultFilterChain), hasRequests))...)
	o.BufferLimit = v.ProxyConfig().Connections(v.IsGateway()).GetListenerPerConnectionBufferLimitBytes()
	var needs []resource.Need
	for _, name := range routes {
		needs = append(needs, resource.Need{TypeURL: resource.RouteType, Name: name, Kind: resource.Warm})
	}
	slices.Sort(clusters)
	out := envoy.Listener(o)
	plugins, err := wasmplugin.Needs(v, out)
	return out, append(append(needs, plugins...), resource.TrafficTo(slices.Compact(clusters))...), err
}

// hasRequests says whether a filter chain, or nil, takes requests.
func hasRequests(c *listenerv3.FilterChain) bool {
	return slices.ContainsFunc(c.GetFilters(), func(f *listenerv3.Filter) bool { return f.GetName() == envoy.HTTPConnectionManagerName })
}

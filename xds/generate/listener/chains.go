package listener

import (
	"cmp"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/generate/cluster"
	"github.com/portolan-mesh/portolan/xds/generate/filter"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// chains collects the filter chains of an outbound listener. Envoy picks a chain by the
// client's destination, then by what the first bytes show, and never goes back a step.
// So connections in which it detects no HTTP need a chain for that, or the one for the
// rest.
type chains struct {
	view     *mesh.View
	name     string
	port     int
	whole    bool // requests name the port that they want
	list     []*listenerv3.FilterChain
	taken    []netip.Prefix          // the ranges of addresses that have a chain
	rest     *listenerv3.FilterChain // nil for none
	detects  bool                    // HTTP is looked for
	children []string
	refs     []string
}

// detectHTTP adds the chain of the plaintext HTTP that is found in connections to
// some addresses, or to all.
func (c *chains) detectHTTP(routes string, to []envoy.CIDR) {
	c.detects = true
	c.http(routes, envoy.FilterChainOptions{
		Prefixes: to, TransportProtocol: envoy.TransportRaw, ApplicationProtocols: envoy.PlaintextHTTP(),
	})
}

// http adds the chain for detected HTTP, with a route configuration.
func (c *chains) http(routes string, match envoy.FilterChainOptions) {
	match.Filters = []*listenerv3.Filter{filter.Manager(c.view, filter.SidecarOutbound, filter.Options{
		StatPrefix: envoy.HTTPStatPrefix(envoy.Outbound, c.name), RouteConfigName: routes,
		DynamicDNS: c.view.PortDynamic(c.dynamicPort()),
	})}
	c.list = append(c.list, envoy.FilterChain(match))
	c.children = append(c.children, routes)
}

// dynamicPort is the port of the services that requests may want.
func (c *chains) dynamicPort() int {
	if c.whole {
		return mesh.AnyPort
	}
	return c.port
}

// shared is the route configuration of the port. routesOf is the one of HTTP that is
// detected at addresses of a service without a declared protocol.
func (c *chains) shared() string { return envoy.SidecarRouteConfigName(uint32(c.port)) }

func (c *chains) routesOf(s *mesh.ServiceRow) string {
	return envoy.ServiceRouteConfigName(string(s.Hostname), uint32(c.port))
}

// tcp has the rest go to a service.
func (c *chains) tcp(s *mesh.ServiceRow) { c.rest = c.to(s, envoy.FilterChainOptions{}) }

// to makes the chain of what goes to a service as it is.
func (c *chains) to(s *mesh.ServiceRow, match envoy.FilterChainOptions) *listenerv3.FilterChain {
	name := envoy.ClusterName(envoy.Outbound, uint32(c.port), "", string(s.Hostname))
	hash := c.view.Hash(s, "", c.port)
	c.refs = append(c.refs, name)
	port, _ := s.Port(c.port)
	match.Filters = []*listenerv3.Filter{envoy.TCPProxy(envoy.TCPProxyOptions{
		StatPrefix:   cmp.Or(cluster.StatName(c.view, s, "", port), name),
		Clusters:     []envoy.WeightedCluster{{Name: name}},
		IdleTimeout:  c.view.IdleTimeout(s, "", c.port),
		HashSourceIP: hash.GetUseSourceIp(),
		Tunnel:       tunnel(c.view.Tunnel(s, "", c.port)),
		AccessLogs:   filter.AccessLogs(c.view),
	})}
	return envoy.FilterChain(match)
}

// tunnel translates settings, nil for none.
func tunnel(t *networking.TrafficPolicy_TunnelSettings) *envoy.Tunnel {
	if t == nil {
		return nil
	}
	return &envoy.Tunnel{Target: net.JoinHostPort(t.GetTargetHost(), strconv.Itoa(int(t.GetTargetPort()))), Post: t.GetProtocol() == "POST"}
}

// ranges adds the chains of a service's ranges of addresses, those apart that an
// older one has.
func (c *chains) ranges(s *mesh.ServiceRow) {
	var to []envoy.CIDR
	for _, p := range s.Ranges() {
		if !slices.Contains(c.taken, p) {
			c.taken = append(c.taken, p)
			to = append(to, envoy.CIDR{Address: p.Addr().String(), Bits: uint32(p.Bits())})
		}
	}
	if len(to) == 0 {
		return
	}
	match := envoy.FilterChainOptions{Prefixes: to}
	if p, _ := s.Port(c.port); p.Protocol == discovery.Unsupported {
		c.detectHTTP(c.routesOf(s), to)
		match.TransportProtocol = envoy.TransportRaw
	}
	c.list = append(c.list, c.to(s, match))
}

// listener makes the listener of the chains at an address.
func (c *chains) listener(o envoy.ListenerOptions) (proto.Message, []resource.Need, error) {
	o.Name, o.Direction, o.AccessLogs = c.name, corev3.TrafficDirection_OUTBOUND, filter.ListenerAccessLogs(c.view)
	if o.FilterChains = c.list; len(o.FilterChains) == 0 {
		o.FilterChains = []*listenerv3.FilterChain{c.rest}
	} else {
		o.DefaultFilterChain = c.rest
	}
	if c.detects {
		o.HTTPInspector, o.DetectionTimeout = true, detectionTimeout(c.view)
	}
	return made(o, c.children, c.refs)
}

func detectionTimeout(v *mesh.View) time.Duration {
	return v.Mesh(mesh.ProtocolDetectionTimeout).GetProtocolDetectionTimeout().AsDuration()
}

// made makes a listener, which waits for route configurations and sends to clusters.
func made(o envoy.ListenerOptions, routes, clusters []string) (proto.Message, []resource.Need, error) {
	var needs []resource.Need
	for _, name := range routes {
		needs = append(needs, resource.Need{TypeURL: resource.RouteType, Name: name, Kind: resource.Warm})
	}
	slices.Sort(clusters)
	return envoy.Listener(o), append(needs, resource.TrafficTo(slices.Compact(clusters))...), nil
}

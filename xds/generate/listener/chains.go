package listener

import (
	"net/netip"
	"slices"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// chains are the filter chains of an outbound listener in the making. Envoy picks
// one by the client's destination, then by what was found in the first bytes, and
// never goes back on a step: what was not found to be HTTP is taken by a chain that
// says so, or by the one for the rest.
type chains struct {
	view     *mesh.View
	name     string
	port     int
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

// http adds the chain of what is taken for HTTP, with a route configuration.
func (c *chains) http(routes string, match envoy.FilterChainOptions) {
	match.Filters = []*listenerv3.Filter{envoy.HTTPConnectionManager(envoy.HTTPOptions{
		StatPrefix:      envoy.HTTPStatPrefix(envoy.Outbound, c.name),
		RouteConfigName: routes,
		AccessLogs:      accessLogs(c.view, false),
	})}
	c.list = append(c.list, envoy.FilterChain(match))
	c.children = append(c.children, routes)
}

// shared is the route configuration of the port, routesOf that of the HTTP which is
// found at addresses of a service that declares no protocol.
func (c *chains) shared() string { return envoy.SidecarRouteConfigName(uint32(c.port)) }

func (c *chains) routesOf(s *mesh.ServiceRow) string {
	return envoy.ServiceRouteConfigName(string(s.Hostname), uint32(c.port))
}

// tcp has the rest go to a service.
func (c *chains) tcp(s *mesh.ServiceRow) { c.rest = c.to(s, envoy.FilterChainOptions{}) }

// to makes the chain of what goes to a service as it is.
func (c *chains) to(s *mesh.ServiceRow, match envoy.FilterChainOptions) *listenerv3.FilterChain {
	cluster := envoy.ClusterName(envoy.Outbound, uint32(c.port), "", string(s.Hostname))
	hash := c.view.Hash(s, "", c.port)
	c.refs = append(c.refs, cluster)
	match.Filters = []*listenerv3.Filter{envoy.TCPProxy(envoy.TCPProxyOptions{
		StatPrefix:   cluster,
		Clusters:     []envoy.WeightedCluster{{Name: cluster}},
		HashSourceIP: hash.GetUseSourceIp(),
		AccessLogs:   accessLogs(c.view, false),
	})}
	return envoy.FilterChain(match)
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
func (c *chains) listener(o envoy.ListenerOptions) (*resource.Resource, error) {
	o.Name, o.Direction, o.AccessLogs = c.name, corev3.TrafficDirection_OUTBOUND, accessLogs(c.view, true)
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
	return v.Mesh().GetProtocolDetectionTimeout().AsDuration()
}

// made makes the resource of a listener, which waits for children and sends to the
// clusters of refs.
func made(o envoy.ListenerOptions, children, refs []string) (*resource.Resource, error) {
	r, err := resource.New(o.Name, envoy.Listener(o), children...)
	if err != nil {
		return nil, err
	}
	slices.Sort(refs)
	r.Refs = slices.Compact(refs)
	return r, nil
}

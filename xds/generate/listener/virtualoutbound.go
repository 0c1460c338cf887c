package listener

import (
	"cmp"
	"net/netip"
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/generate/filter"
	"github.com/portolan-mesh/portolan/xds/generate/route"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/service"
	"github.com/portolan-mesh/portolan/xds/names"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// The proxy itself uses these ports, for health and statistics, besides the ports of the
// virtual listeners. (Istio: 15021 and 15090.)
const (
	statusPort     = 15021
	prometheusPort = 15090
)

// portReserved says whether a listener at all addresses on this port would collide with the
// proxy's own ports.
func portReserved(v *mesh.View, port int) bool {
	return port == statusPort || port == prometheusPort ||
		port == int(v.Mesh(mesh.ProxyListenPort).GetProxyListenPort()) || port == int(v.Mesh(mesh.ProxyInboundListenPort).GetProxyInboundListenPort())
}

// virtualOutbound makes the listener that gets captured connections. It hands each to the
// listener of its original destination. If there is none, the outbound traffic policy
// decides whether the connection passes. (Istio: virtualOutbound.)
func virtualOutbound(v *mesh.View) (proto.Message, []resource.Need, error) {
	port := uint32(v.Mesh(mesh.ProxyListenPort).GetProxyListenPort())
	rest, restCluster := passChain(v, names.VirtualOutboundCatchAll)
	return build(v, filter.SidecarOutbound, envoy.ListenerOptions{
		Name: names.VirtualOutboundListener, Host: v.Shape().Wildcard(), MoreHosts: moreWildcards(v.Shape()), Port: port,
		HandOff: true, Transparent: v.Shape().Interception == discovery.InterceptionTproxy,
		Direction:  corev3.TrafficDirection_OUTBOUND,
		AccessLogs: filter.ListenerAccessLogs(v, filter.SidecarOutbound),
		FilterChains: []*listenerv3.FilterChain{
			blackHoleChain(v, filter.SidecarOutbound, names.VirtualOutboundBlackHole, port), rest,
		},
	}, nil, []string{names.BlackHoleCluster, restCluster})
}

// blackHoleChain closes connections to a virtual listener's own port. The listener would
// hand them to itself forever.
func blackHoleChain(v *mesh.View, k filter.Kind, name string, port uint32) *listenerv3.FilterChain {
	return envoy.FilterChain(envoy.FilterChainOptions{
		Name: name, DestinationPort: port,
		Filters: filter.Network(v, k, filter.NetworkOptions{}, filter.TCPProxy(v, k, envoy.TCPProxyOptions{
			StatPrefix: names.BlackHoleCluster,
			Clusters:   []envoy.WeightedCluster{{Name: names.BlackHoleCluster}},
		})),
	})
}

// passChain makes the chain for connections that no other chain takes, and returns their
// cluster.
func passChain(v *mesh.View, name string) (chain *listenerv3.FilterChain, cluster string) {
	cluster = cmp.Or(route.RestCluster(v), names.BlackHoleCluster)
	return envoy.FilterChain(envoy.FilterChainOptions{
		Name: name,
		Filters: filter.Network(v, filter.SidecarOutbound, filter.NetworkOptions{}, filter.TCPProxy(v, filter.SidecarOutbound, envoy.TCPProxyOptions{
			StatPrefix: cluster,
			Clusters:   []envoy.WeightedCluster{{Name: cluster}},
		})),
	}), cluster
}

// wildcardListener makes the listener of a port at all addresses, nil if no service claims it.
// HTTP goes to the port's routes. Other connections go to the service with their
// destination in an address range; else, for TLS, to the service without known addresses
// that the SNI names; else to the oldest service without known addresses that does not
// speak TLS; else the policy decides whether they pass.
func wildcardListener(v *mesh.View, name string, l mesh.EgressListener, port int) (proto.Message, []resource.Need, error) {
	if portReserved(v, port) {
		return nil, nil, nil
	}
	c := chains{view: v, egress: l, name: name, port: port, whole: l.IsHTTPProxy()}
	if l.Port == 0 || takesTCP(l) {
		for s := range v.ServicesOnPort(l, service.PortRange, port) {
			c.ranges(s)
		}
	}
	if v.CarriesHTTP(l, port) {
		c.detectHTTP(c.shared(), nil)
	}
	c.addBySNI(service.PortOpenTLS)
	if s := oldestOpen(v, l, port); s != nil {
		c.addBytes(s)
	}
	if len(c.list) == 0 && c.rest == nil {
		return nil, nil, nil
	}
	c.orPass()
	return c.listener(envoy.ListenerOptions{
		Host: v.Shape().Wildcard(), MoreHosts: moreWildcards(v.Shape()), Port: uint32(port), Unbound: true,
	})
}

// addressListener makes the listener of a port at an address of services, or of the workloads of
// headless ones. It is nil if all of them use the port for HTTP: the listener at all addresses
// takes that, and hosts tell the services apart. If several services have the address, the oldest
// gets it.
func addressListener(v *mesh.View, name string, l mesh.EgressListener, port int) (proto.Message, []resource.Need, error) {
	ip, err := netip.ParseAddr(addressOf(name))
	if err != nil || names.Listener(ip.String(), uint32(port)) != name {
		return nil, nil, nil
	}
	var services []*mesh.ServiceRow
	if l.Port == 0 && v.Shape().HasFamily(ip) {
		services = v.HeadlessAt(l, ip.String(), port)
	}
	for h := range v.HostsAt(ip.String()) {
		s := v.ServiceAt(l, host.Name(h))
		if s == nil || !hasAddress(s, v.Shape(), ip) || slices.Contains(services, s) {
			continue
		}
		if p, ok := s.Port(port); ok && takenAsTCP(l, p) {
			services = append(services, s)
		}
	}
	if len(services) == 0 {
		return nil, nil, nil
	}
	slices.SortFunc(services, func(a, b *mesh.ServiceRow) int { return discovery.CompareServices(a.Service(), b.Service()) })
	c := chains{view: v, egress: l, name: name, port: port}
	for _, s := range services {
		if detectsHTTP(l, s, port) {
			c.detectHTTP(c.routesOf(s), nil)
			break
		}
	}
	c.addBytes(services[0])
	c.orPass()
	return c.listener(envoy.ListenerOptions{Host: ip.String(), Port: uint32(port), Unbound: true})
}

// hasAddress says whether proxies of a shape call a service at an address.
func hasAddress(s *mesh.ServiceRow, of mesh.Shape, ip netip.Addr) bool {
	return slices.ContainsFunc(of.Addresses(s), func(a string) bool {
		parsed, err := netip.ParseAddr(a)
		return err == nil && parsed.Unmap() == ip
	})
}

// takenAsTCP says whether a listener forwards connections to a port as TCP, unless it
// detects HTTP in them. It does if the port does not declare HTTP, or if the listener has
// its own port and declares something else.
func takenAsTCP(l mesh.EgressListener, p discovery.Port) bool {
	if l.Port != 0 {
		return p.Protocol.IsServed() && takesTCP(l)
	}
	return p.Protocol.IsServed() && !p.Protocol.IsHTTP()
}

// takesTCP says, of a listener with its own port, whether the port is for anything but
// HTTP.
func takesTCP(l mesh.EgressListener) bool { return l.Protocol.IsServed() && !l.Protocol.IsHTTP() }

// detectsHTTP says whether the proxy must detect HTTP on a service's port, since neither the
// port nor the listener declares a protocol.
func detectsHTTP(l mesh.EgressListener, s *mesh.ServiceRow, port int) bool {
	p, ok := s.Port(port)
	return ok && l.Port == 0 && p.Protocol == discovery.Unsupported
}

// oldestOpen returns the service that gets connections to unknown addresses if they are
// neither HTTP nor TLS; nil for none.
func oldestOpen(v *mesh.View, l mesh.EgressListener, port int) *mesh.ServiceRow {
	uses := []service.PortUse{service.PortOpen}
	if l.Port != 0 {
		if !takesTCP(l) || l.Protocol.IsTLS() {
			return nil
		}
		uses = []service.PortUse{service.PortOpen, service.PortHeadless, service.PortHTTP}
	}
	var oldest *mesh.ServiceRow
	for _, use := range uses {
		for s := range v.ServicesOnPort(l, use, port) {
			if s.Open() && !speaksTLS(l, s, port) && takesBytes(l, s, port) {
				oldest = olderService(oldest, s)
				break
			}
		}
	}
	return oldest
}

// socketNames yields the names of the listeners of a port at the workloads of a headless service.
func socketNames(v *mesh.View, s *mesh.ServiceRow, port int, yield func(string) bool) bool {
	for address := range v.Sockets(s, port) {
		if !yield(names.Listener(address, uint32(port))) {
			return false
		}
	}
	return true
}

// headlessNames yields the listeners at addresses where a headless service that the proxy sees has
// got a workload. Where it has lost one, the listener was built from a row that changed.
func headlessNames(v *mesh.View, d mesh.Delta, yield func(string) bool) {
	for address, port := range d.Sockets() {
		for _, l := range route.ListenersOf(v, port) {
			if l.Port == 0 && bindOf(v, l) == "" && len(v.HeadlessAt(l, address, port)) > 0 && !yield(names.Listener(address, uint32(port))) {
				return
			}
		}
	}
}

// olderService returns the older of two services; either may be nil.
func olderService(a, b *mesh.ServiceRow) *mesh.ServiceRow {
	if a == nil || b != nil && discovery.CompareServices(b.Service(), a.Service()) < 0 {
		return b
	}
	return a
}

// capturedNames yields the names of the listeners that a service has, or shares, on a
// port.
func capturedNames(v *mesh.View, l mesh.EgressListener, s *mesh.ServiceRow, p discovery.Port, yield func(string) bool) bool {
	port := uint32(p.Number)
	if !takenAsTCP(l, p) {
		return yield(names.Listener(v.Shape().Wildcard(), port))
	}
	byWorkload := l.Port == 0 && s.Headless()
	if byWorkload && !socketNames(v, s, p.Number, yield) {
		return false
	}
	if (s.Open() && !byWorkload || len(s.Ranges()) > 0) && !yield(names.Listener(v.Shape().Wildcard(), port)) {
		return false
	}
	for _, a := range v.Shape().Addresses(s) {
		if ip, err := netip.ParseAddr(a); err == nil && !yield(names.Listener(ip.Unmap().String(), port)) {
			return false
		}
	}
	return true
}

// bindOf returns the one address of an egress listener: that of its own socket, or the
// one at which it takes captured connections. It is empty if the address depends on the
// services.
func bindOf(v *mesh.View, l mesh.EgressListener) string {
	if bindsSockets(v, l) {
		return cmp.Or(l.Bind, loopback(v.Shape()))
	}
	return l.Bind
}

// bindsSockets says whether an egress listener opens its own sockets.
func bindsSockets(v *mesh.View, l mesh.EgressListener) bool {
	return l.Uncaptured || !v.Shape().Captures()
}

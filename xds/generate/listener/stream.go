package listener

import (
	"cmp"
	"fmt"
	"iter"
	"net/netip"
	"slices"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/generate/cluster"
	"github.com/portolan-mesh/portolan/xds/generate/filter"
	"github.com/portolan-mesh/portolan/xds/generate/route"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/routing"
	"github.com/portolan-mesh/portolan/xds/mesh/service"
	"github.com/portolan-mesh/portolan/xds/names"
)

// stream is one way for connections to a service: those to some addresses (or all) with
// some SNI names (or all).
type stream struct {
	to    []netip.Prefix // empty for the service's own addresses
	names []string
	tls   bool // the connections begin with TLS
	// vs is the VirtualService with the route, nil for the service itself. field is the
	// path of the route or match.
	vs    *routing.VirtualService
	field string
	route []*networking.RouteDestination
}

// speaksTLS says whether connections to a service's port, as an egress listener sees it,
// begin with TLS.
func speaksTLS(l mesh.EgressListener, s *mesh.ServiceRow, port int) bool {
	if l.Port != 0 || l.Socket != "" {
		return l.Protocol.IsTLS()
	}
	p, _ := s.Port(port)
	return p.Protocol.IsTLS()
}

// streams returns the ways for connections to a service, in the order in which they are
// tried. Plaintext follows the tcp routes of VirtualServices up to the first that takes
// every connection, else it ends at the service. TLS follows all tls routes. Without tls
// routes it goes to the service, but only by its own name if byName is set or the service
// is dynamic.
func (c *chains) streams(s *mesh.ServiceRow, byName bool) []stream {
	if speaksTLS(c.egress, s, c.port) {
		return c.tlsStreams(s, byName)
	}
	var out []stream
	for _, vs := range c.view.Streams(c.egress, s.Hostname) {
		for st := range c.tcpRoutes(vs) {
			if out = append(out, st); len(st.to) == 0 {
				return out
			}
		}
	}
	return append(out, stream{})
}

func (c *chains) tlsStreams(s *mesh.ServiceRow, byName bool) []stream {
	var out []stream
	for _, vs := range c.view.Streams(c.egress, s.Hostname) {
		out = slices.AppendSeq(out, c.tlsRoutes(vs))
	}
	switch {
	case len(out) > 0:
		return out
	case byName || isDynamic(s):
		return []stream{{names: c.sniNames(s), tls: true}}
	}
	return []stream{{tls: true}}
}

// sniNames returns the host of a service, and its aliases with their short names.
// (Istio: buildSidecarOutboundTLSFilterChainOpts.)
func (c *chains) sniNames(s *mesh.ServiceRow) []string {
	out := []string{string(s.Hostname)}
	for _, alias := range c.view.AliasesAt(c.egress, s.Hostname) {
		out = append(out, string(alias))
		for _, short := range c.view.ShortNames(alias) {
			out = append(out, short.Name)
		}
	}
	return out
}

// tcpRoutes iterates over the tcp routes of a VirtualService that apply to this proxy and
// port.
func (c *chains) tcpRoutes(vs *routing.VirtualService) iter.Seq[stream] {
	return func(yield func(stream) bool) {
		for i, r := range vs.Spec.GetTcp() {
			to, applies := c.tcpMatch(r.GetMatch())
			if applies && !yield(stream{to: to, vs: vs, field: fmt.Sprintf("spec.tcp[%d]", i), route: r.GetRoute()}) {
				return
			}
		}
	}
}

// tlsRoutes iterates over the matches of its tls routes that apply to this proxy and
// port.
func (c *chains) tlsRoutes(vs *routing.VirtualService) iter.Seq[stream] {
	return func(yield func(stream) bool) {
		for i, r := range vs.Spec.GetTls() {
			for k, m := range r.GetMatch() {
				if applies(c.view, m, c.port) && !yield(stream{
					to: c.subnets(m.GetDestinationSubnets()), names: m.GetSniHosts(), tls: true,
					vs: vs, field: fmt.Sprintf("spec.tls[%d].match[%d]", i, k), route: r.GetRoute(),
				}) {
					return
				}
			}
		}
	}
}

// FieldOf returns the field of a VirtualService that a filter chain of a port comes from:
// a tcp route, or a match of a tls route. It returns false if it comes from none.
func FieldOf(v *mesh.View, l mesh.EgressListener, port int, vs *routing.VirtualService, chain *listenerv3.FilterChain) (string, bool) {
	c := chains{view: v, egress: l, port: port}
	names := chain.GetFilterChainMatch().GetServerNames()
	for _, all := range []iter.Seq[stream]{c.tcpRoutes(vs), c.tlsRoutes(vs)} {
		for st := range all {
			made := c.chain(nil, st, envoy.FilterChainOptions{})
			missing := func(name string) bool { return !slices.Contains(st.names, name) }
			if !slices.ContainsFunc(names, missing) && slices.EqualFunc(made.GetFilters(), chain.GetFilters(), func(a, b *listenerv3.Filter) bool { return proto.Equal(a, b) }) {
				return st.field, true
			}
		}
	}
	return "", false
}

// tcpMatch returns the address ranges of a tcp route's matches, empty for all, and
// whether any match applies to this proxy.
func (c *chains) tcpMatch(matches []*networking.L4MatchAttributes) (to []netip.Prefix, some bool) {
	if len(matches) == 0 {
		return nil, true
	}
	for _, m := range matches {
		if !applies(c.view, m, c.port) {
			continue
		}
		in := c.subnets(m.GetDestinationSubnets())
		if len(in) == 0 {
			return nil, true
		}
		to, some = append(to, in...), true
	}
	return to, some
}

// streamMatch has the conditions of tcp and tls matches that are known before a
// connection arrives.
type streamMatch interface {
	GetPort() uint32
	GetGateways() []string
	GetSourceLabels() map[string]string
	GetSourceNamespace() string
}

// applies says whether a match is for this port and proxy. Unlike with HTTP, all its
// conditions count. (Istio: matchTCP, matchTLS.)
func applies(v *mesh.View, m streamMatch, port int) bool {
	return (m.GetPort() == 0 || int(m.GetPort()) == port) &&
		(len(m.GetGateways()) == 0 || slices.Contains(m.GetGateways(), mesh.MeshGateway)) &&
		(len(m.GetSourceLabels()) == 0 || v.HasLabels(labels.Instance(m.GetSourceLabels()))) &&
		(m.GetSourceNamespace() == "" || v.InNamespace(m.GetSourceNamespace()))
}

// subnets parses address ranges. It returns none if one of them covers all addresses, and
// for a socket, whose connections have no address.
func (c *chains) subnets(list []string) []netip.Prefix {
	if c.egress.Socket != "" {
		return nil
	}
	var out []netip.Prefix
	for _, text := range list {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			ip, err := netip.ParseAddr(text)
			if err != nil {
				continue
			}
			p = netip.PrefixFrom(ip.Unmap(), ip.Unmap().BitLen())
		}
		if p.Bits() == 0 {
			return nil
		}
		out = append(out, p.Masked())
	}
	return out
}

// claim identifies what only one filter chain may take: an address range, or all, and an
// SNI name, or all.
type claim struct {
	to   netip.Prefix
	name string
}

// add adds the filter chains of a stream to a service with some address ranges. It omits
// what older services and earlier routes have taken. A stream for everything becomes the
// default chain.
func (c *chains) add(s *mesh.ServiceRow, own []netip.Prefix, st stream, transport string) {
	if len(st.to) == 0 {
		st.to = own
	}
	if slices.Contains(st.names, "*") {
		st.names = nil
	}
	if len(st.to) == 0 && len(st.names) == 0 {
		if c.rest == nil {
			c.rest = c.chain(s, st, envoy.FilterChainOptions{})
		}
		return
	}
	var matches []envoy.FilterChainOptions
	for _, to := range orAny(st.to) {
		names, free := c.claim(to, st.names)
		if !free {
			continue
		}
		i := slices.IndexFunc(matches, func(m envoy.FilterChainOptions) bool { return slices.Equal(m.ServerNames, names) })
		if i < 0 {
			i, matches = len(matches), append(matches, envoy.FilterChainOptions{ServerNames: names, TransportProtocol: transport})
		}
		if to.IsValid() {
			matches[i].Prefixes = append(matches[i].Prefixes, envoy.CIDR{Address: to.Addr().String(), Bits: uint32(to.Bits())})
		}
	}
	for _, match := range matches {
		c.inspectsTLS = c.inspectsTLS || len(match.ServerNames) > 0
		c.list = append(c.list, c.chain(s, st, match))
	}
}

// claim takes those names that are still free at an address range. It returns false if
// none is.
func (c *chains) claim(to netip.Prefix, names []string) (free []string, some bool) {
	if len(names) == 0 {
		names = []string{""}
	}
	for _, name := range names {
		one := claim{to, name}
		if c.taken[one] {
			continue
		}
		if c.taken == nil {
			c.taken = map[claim]bool{}
		}
		c.taken[one], some = true, true
		if name != "" {
			free = append(free, name)
		}
	}
	return free, some
}

// orAny returns the address ranges, or the zero prefix for all addresses if there are
// none.
func orAny(to []netip.Prefix) []netip.Prefix {
	if len(to) == 0 {
		return []netip.Prefix{{}}
	}
	return to
}

// chain makes the filter chain of a stream to a service.
func (c *chains) chain(s *mesh.ServiceRow, st stream, match envoy.FilterChainOptions) *listenerv3.FilterChain {
	var to envoy.TCPProxyOptions
	if st.vs == nil {
		c.addCluster(&to, s, string(s.Hostname), "", c.port, 0)
	} else {
		of, weighted := st.vs.Config, len(st.route) > 1
		match.Config = names.ConfigPath(of.Group, of.Version, of.Kind, of.Namespace, of.Name)
		if weighted {
			to.StatPrefix = names.WeightedStatPrefix(of.Name, of.Namespace)
		}
		for _, d := range st.route {
			if !weighted || d.GetWeight() > 0 {
				service, port := route.Destination(c.view, d.GetDestination(), c.port)
				c.addCluster(&to, service, d.GetDestination().GetHost(), d.GetDestination().GetSubset(), port, d.GetWeight())
			}
		}
	}
	resolved := c.resolvedPort(s, st)
	c.inspectsTLS = c.inspectsTLS || resolved != 0
	match.Filters = filter.Network(c.view, c.kind, filter.NetworkOptions{Port: c.port, ResolveSNI: resolved}, filter.TCPProxy(c.view, c.kind, to))
	return envoy.FilterChain(match)
}

// addCluster adds a cluster to a TCP proxy; the service may be nil. The first cluster decides
// the idle timeout and the tunnel.
func (c *chains) addCluster(proxy *envoy.TCPProxyOptions, s *mesh.ServiceRow, h, subset string, port int, weight int32) {
	name := names.Cluster(names.Outbound, uint32(port), subset, h)
	c.refs = append(c.refs, name)
	first := len(proxy.Clusters) == 0
	if first && proxy.StatPrefix == "" {
		if proxy.StatPrefix = name; s != nil {
			p, _ := s.Port(port)
			proxy.StatPrefix = cmp.Or(cluster.StatName(c.view, s, subset, p), name)
		}
	}
	proxy.Clusters = append(proxy.Clusters, envoy.WeightedCluster{Name: name, Weight: uint32(max(weight, 0))})
	if s == nil {
		return
	}
	proxy.HashSourceIP = proxy.HashSourceIP || c.view.Hash(s, subset, port).GetUseSourceIp()
	if first {
		proxy.IdleTimeout, proxy.Tunnel = c.view.IdleTimeout(s, subset, port), tunnel(c.view.Tunnel(s, subset, port))
	}
}

// addConnections adds the chains for TCP or TLS connections to a service, at its address
// ranges or, without any, at all addresses of the listener.
func (c *chains) addConnections(s *mesh.ServiceRow, own []netip.Prefix, byName bool, transport string) {
	for _, st := range c.streams(s, byName) {
		c.add(s, own, st, transport)
	}
}

// addBytes adds the connections to a service that has the listener's address to itself,
// except those that tls routes do not match.
func (c *chains) addBytes(s *mesh.ServiceRow) { c.addConnections(s, nil, false, "") }

// addBySNI adds the TLS services that share the listener's address, by their SNI names.
func (c *chains) addBySNI(use service.PortUse) {
	l := c.egress
	switch {
	case l.Port == 0:
		for s := range c.view.ServicesOnPort(l, use, c.port) {
			c.addConnections(s, nil, true, "")
		}
	case l.Protocol.IsTLS():
		for _, of := range []service.PortUse{service.PortTCP, service.PortHTTP} {
			for s := range c.view.ServicesOnPort(l, of, c.port) {
				if use != service.PortOpenTLS || s.Open() {
					c.addConnections(s, nil, true, "")
				}
			}
		}
	}
}

// orPass lets connections that no chain takes pass, if the policy allows it.
func (c *chains) orPass() {
	if c.rest == nil && len(c.list) > 0 {
		var cluster string
		c.rest, cluster = passChain(c.view, names.PassthroughFilterChain)
		c.refs = append(c.refs, cluster)
	}
}

// ranges adds the chains of a service's address ranges. It omits ranges that an older
// service has.
func (c *chains) ranges(s *mesh.ServiceRow) {
	tls, transport := speaksTLS(c.egress, s, c.port), ""
	var own []netip.Prefix
	var to []envoy.CIDR
	for _, p := range s.Ranges() {
		if p = p.Masked(); tls || !c.taken[claim{to: p}] {
			own, to = append(own, p), append(to, envoy.CIDR{Address: p.Addr().String(), Bits: uint32(p.Bits())})
		}
	}
	if len(own) == 0 {
		return
	}
	if p, _ := s.Port(c.port); c.egress.Port == 0 && p.Protocol == discovery.Unsupported {
		c.detectHTTP(c.routesOf(s), to)
		transport = envoy.TransportRaw
	}
	c.addConnections(s, own, tls, transport)
}

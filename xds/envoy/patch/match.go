package patch

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/xds/names"
)

// is says whether the patch applies to something, in a context.
func (p *Patch) is(to networking.EnvoyFilter_ApplyTo, in networking.EnvoyFilter_PatchContext) bool {
	return p.Err == nil && p.ApplyTo == to && (p.Context == networking.EnvoyFilter_ANY || p.Context == in)
}

// addsIn says whether the patch adds a resource in a context. Without a context of its own it adds
// none for inbound, where it would stand twice.
func (p *Patch) addsIn(to networking.EnvoyFilter_ApplyTo, in networking.EnvoyFilter_PatchContext) bool {
	return p.Operation == networking.EnvoyFilter_Patch_ADD && p.is(to, in) &&
		(p.Context != networking.EnvoyFilter_ANY || in != networking.EnvoyFilter_SIDECAR_INBOUND)
}

// concerns returns what says whether a patch may change the resource at a place.
func concerns(at Place) func(*Patch) bool {
	switch at.Kind {
	case networking.EnvoyFilter_CLUSTER:
		f := factsOfCluster(at.Name, at)
		return func(p *Patch) bool {
			return p.is(at.Kind, at.Context) && p.Operation != networking.EnvoyFilter_Patch_ADD && p.matchesCluster(f)
		}
	case networking.EnvoyFilter_LISTENER:
		return func(p *Patch) bool { return p.mayConcernListener(at) }
	case networking.EnvoyFilter_ROUTE_CONFIGURATION:
		f := factsOfRoutes(at.Name, at)
		return func(p *Patch) bool { return p.ofRoutes(at.Context) && p.matchesRoutes(f) }
	case networking.EnvoyFilter_VIRTUAL_HOST:
		f := factsOfRoutes(at.Routes, at)
		return func(p *Patch) bool {
			return p.ofRoutes(at.Context) && p.ApplyTo != networking.EnvoyFilter_ROUTE_CONFIGURATION && !p.addsVirtualHost(at) &&
				p.matchesRoutes(f) && matchesName(p.virtualHost().GetName(), at.Name)
		}
	}
	return func(*Patch) bool { return false }
}

func (p *Patch) mayConcernListener(at Place) bool {
	switch p.ApplyTo {
	case networking.EnvoyFilter_LISTENER:
		return p.is(p.ApplyTo, at.Context) && p.Operation != networking.EnvoyFilter_Patch_ADD && p.matchesListener(at.Name, at.Port)
	case networking.EnvoyFilter_LISTENER_FILTER, networking.EnvoyFilter_FILTER_CHAIN, networking.EnvoyFilter_NETWORK_FILTER, networking.EnvoyFilter_HTTP_FILTER:
		return p.is(p.ApplyTo, at.Context) && p.matchesListener(at.Name, at.Port)
	}
	return hasRoutes(at.Context) && p.ofRoutes(at.Context)
}

// hasRoutes says whether listeners of a context have their routes within.
func hasRoutes(in networking.EnvoyFilter_PatchContext) bool {
	return in == networking.EnvoyFilter_SIDECAR_INBOUND
}

// ofRoutes says whether the patch is for routes, in a context.
func (p *Patch) ofRoutes(in networking.EnvoyFilter_PatchContext) bool {
	return p.is(networking.EnvoyFilter_ROUTE_CONFIGURATION, in) || p.is(networking.EnvoyFilter_VIRTUAL_HOST, in) || p.is(networking.EnvoyFilter_HTTP_ROUTE, in)
}

// matchesName says whether a match asks for a name, or for none.
func matchesName(asked, name string) bool { return asked == "" || asked == name }

// matchesNumber is matchesName for a port, of which 0 is unknown.
func matchesNumber(asked, port uint32) bool { return asked == 0 || asked == port }

// clusterFacts are what matches ask about a cluster.
type clusterFacts struct {
	name  string
	ref   names.ClusterRef
	hosts []string
}

// factsOfCluster reads the name of a cluster. An inbound one has the hosts of its place.
func factsOfCluster(name string, at Place) clusterFacts {
	f := clusterFacts{name: name}
	var ok bool
	if f.ref, ok = names.ParseCluster(name); !ok {
		f.ref, _ = names.ParseSNICluster(name)
	}
	f.hosts = []string{f.ref.Host}
	if f.ref.Direction == names.Inbound && at.Hosts != "" {
		f.hosts = strings.Fields(at.Hosts)
	}
	return f
}

// matchesCluster judges a cluster by its name. A name that the match has decides alone.
func (p *Patch) matchesCluster(f clusterFacts) bool {
	m := p.match.GetCluster()
	if m.GetName() != "" {
		return m.GetName() == f.name
	}
	return matchesName(m.GetSubset(), f.ref.Subset) && matchesNumber(m.GetPortNumber(), f.ref.Port) &&
		(m.GetService() == "" || slices.Contains(f.hosts, m.GetService()))
}

// matchesListener judges a listener by its name and the port of its address, of which 0 is unknown.
// The virtual listeners take what is for any port: their filter chains say for which.
func (p *Patch) matchesListener(name string, port uint32) bool {
	m := p.match.GetListener()
	if !matchesName(m.GetName(), name) {
		return false
	}
	if p.ApplyTo != networking.EnvoyFilter_LISTENER && isVirtual(name) {
		return true
	}
	return port == 0 || matchesNumber(m.GetPortNumber(), port)
}

func isVirtual(name string) bool {
	return name == names.VirtualInboundListener || name == names.VirtualOutboundListener
}

// ofListener says whether the patch is for a listener, or something in it.
func (p *Patch) ofListener(to networking.EnvoyFilter_ApplyTo, l *listenerv3.Listener, at Place) bool {
	if !p.is(to, at.Context) {
		return false
	}
	port := l.GetAddress().GetSocketAddress().GetPortValue()
	if port == 0 && p.match.GetListener().GetPortNumber() != 0 && (to == networking.EnvoyFilter_LISTENER || !isVirtual(l.GetName())) {
		return false // a socket without ports
	}
	return p.matchesListener(l.GetName(), port)
}

// matchesChain judges a filter chain of a listener that the patch is for.
func (p *Patch) matchesChain(l *listenerv3.Listener, chain *listenerv3.FilterChain) bool {
	m := p.match.GetListener()
	has := chain.GetFilterChainMatch()
	port := has.GetDestinationPort().GetValue()
	if isVirtual(l.GetName()) && !matchesNumber(m.GetPortNumber(), port) {
		return false
	}
	want := m.GetFilterChain()
	if !matchesName(want.GetName(), chain.GetName()) || !matchesNumber(want.GetDestinationPort(), port) ||
		!matchesName(want.GetTransportProtocol(), has.GetTransportProtocol()) {
		return false
	}
	if want.GetSni() != "" && !slices.Contains(has.GetServerNames(), want.GetSni()) {
		return false
	}
	for protocol := range strings.SplitSeq(want.GetApplicationProtocols(), ",") {
		if protocol = strings.TrimSpace(protocol); protocol != "" && !slices.Contains(has.GetApplicationProtocols(), protocol) {
			return false
		}
	}
	return true
}

// networkFilter returns the name of the network filter that the match asks for, "" for none.
func (p *Patch) networkFilter() string {
	return p.match.GetListener().GetFilterChain().GetFilter().GetName()
}

// httpFilter returns the name of the HTTP filter that the match asks for, "" for none.
func (p *Patch) httpFilter() string {
	return p.match.GetListener().GetFilterChain().GetFilter().GetSubFilter().GetName()
}

// routeFacts are what matches ask about a route configuration. Only a gateway's has the name of a
// port and of a Gateway.
type routeFacts struct {
	name, portName, gateway string
	ports                   []uint32
	ofGateway               bool
}

// factsOfRoutes reads the name of a route configuration. For a gateway, the ports of services that
// lead to its port count in place of that.
func factsOfRoutes(name string, at Place) routeFacts {
	if at.Context != networking.EnvoyFilter_GATEWAY {
		return routeFacts{name: name, ports: []uint32{portOfRoutes(name)}}
	}
	port, portName, gateway := gatewayRoutes(name)
	f := routeFacts{name: name, portName: cmp.Or(at.PortName, portName), gateway: cmp.Or(at.Gateway, gateway), ofGateway: true}
	for text := range strings.FieldsSeq(at.Ports) {
		if number, err := strconv.ParseUint(text, 10, 16); err == nil {
			f.ports = append(f.ports, uint32(number))
		}
	}
	if at.Ports == "" {
		f.ports = []uint32{port}
	}
	return f
}

func (p *Patch) matchesRoutes(f routeFacts) bool {
	m := p.match.GetRouteConfiguration()
	return matchesName(m.GetName(), f.name) && (m.GetPortNumber() == 0 || slices.Contains(f.ports, m.GetPortNumber())) &&
		(!f.ofGateway || matchesName(m.GetPortName(), f.portName) && matchesName(m.GetGateway(), f.gateway))
}

// portOfRoutes returns the port in the name of a sidecar's routes, 0 for none: 80,
// inbound|8080||, or web.example.com:80.
func portOfRoutes(name string) uint32 {
	if ref, ok := names.ParseCluster(name); ok {
		return ref.Port
	}
	port, err := strconv.ParseUint(name[strings.LastIndexByte(name, ':')+1:], 10, 16)
	if err != nil {
		return 0
	}
	return uint32(port)
}

// gatewayRoutes reads the name of a gateway's routes. Like Istio's (ParseGatewayRDSRouteName), it
// reads no name of a server that has an address, or whose Gateway has dots in its name.
func gatewayRoutes(name string) (port uint32, portName, gateway string) {
	parts := strings.Split(name, ".")
	switch {
	case len(parts) >= 2 && parts[0] == "http":
	case len(parts) == 5 && parts[0] == "https":
		portName, gateway = parts[2], parts[4]+"/"+parts[3]
	default:
		return 0, "", ""
	}
	number, err := strconv.ParseUint(parts[1], 10, 16)
	if err != nil {
		return 0, "", ""
	}
	return uint32(number), portName, gateway
}

func (p *Patch) virtualHost() *networking.EnvoyFilter_RouteConfigurationMatch_VirtualHostMatch {
	return p.match.GetRouteConfiguration().GetVhost()
}

func (p *Patch) matchesVirtualHost(m *routev3.VirtualHost) bool {
	want := p.virtualHost()
	return matchesName(want.GetName(), m.GetName()) && (want.GetDomainName() == "" || slices.Contains(m.GetDomains(), want.GetDomainName()))
}

// namesRoute says whether the match asks for a route.
func (p *Patch) namesRoute() bool { return p.virtualHost().GetRoute() != nil }

func (p *Patch) matchesRoute(m *routev3.Route) bool {
	want := p.virtualHost().GetRoute()
	if !matchesName(want.GetName(), m.GetName()) {
		return false
	}
	switch want.GetAction() {
	case networking.EnvoyFilter_RouteConfigurationMatch_RouteMatch_ROUTE:
		return m.GetRoute() != nil
	case networking.EnvoyFilter_RouteConfigurationMatch_RouteMatch_REDIRECT:
		return m.GetRedirect() != nil
	case networking.EnvoyFilter_RouteConfigurationMatch_RouteMatch_DIRECT_RESPONSE:
		return m.GetDirectResponse() != nil
	}
	return true
}

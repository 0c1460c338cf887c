package virtualhost

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/generate/route"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/class"
	"github.com/portolan-mesh/portolan/xds/mesh/routing"
	"github.com/portolan-mesh/portolan/xds/names"
)

// foreignPort is the only port on which VirtualServices may route hosts that are not
// services. (Istio: legacy, but relied upon.)
const foreignPort = 80

// httpPort is the port of a request that does not name one.
const httpPort = 80

func sidecarName(h string, port int) string {
	return route.HostName(names.SidecarRouteConfig(uint32(port)), h, port)
}

// sidecarNames yields the hosts that may appear or disappear: those of services, and
// those that VirtualServices name.
func sidecarNames(v *mesh.View, d mesh.Delta, yield func(string) bool) {
	names := hostNames{v, slices.Collect(route.WholeCarriers(v)), route.Beside(v)}
	for row := range route.ChangedHosts(v, d) {
		if !names.hostsOf(row, yield) {
			return
		}
	}
	for c := range d.Routes() {
		h, ok := strings.CutPrefix(c.Key, routing.RouteKey(mesh.MeshGateway, ""))
		if !ok || d.Whole && !v.SeesRoutes(c.New) {
			continue
		}
		if !names.namesAt(h, foreignPort, yield) {
			return
		}
	}
}

// hostNames yields names of virtual hosts of a sidecar. whole are its carriers for all
// ports, and beside the egress listeners whose port another has, too.
type hostNames struct {
	view   *mesh.View
	whole  []route.Carrier
	beside []mesh.EgressListener
}

// namesAt yields the names of a host on a port, in the route configuration of the port and in
// those for all ports.
func (n hostNames) namesAt(h string, port int, yield func(string) bool) bool {
	if !yield(sidecarName(h, port)) {
		return false
	}
	for _, l := range n.beside {
		if l.Port == port && !yield(route.HostName(l.Routes, h, port)) {
			return false
		}
	}
	for _, c := range n.whole {
		if !yield(route.HostName(c.Whole, h, port)) {
			return false
		}
	}
	return true
}

// hostsOf yields the hosts of a service, and hosts without a service that may have given way
// to it: its addresses, patterns that cover it, and itself if it was an alias.
func (n hostNames) hostsOf(row *mesh.HostRow, yield func(string) bool) bool {
	v := n.view
	for port := range route.DetectedPorts(v, row) {
		config := names.ServiceRouteConfig(string(row.Hostname), uint32(port))
		if !yield(route.HostName(config, string(row.Hostname), port)) {
			return false
		}
	}
	covers := false
	for _, s := range row.Services {
		if s.ExternalName() != "" && !n.namesAt(string(s.Hostname), foreignPort, yield) {
			return false
		}
		for _, p := range s.Ports() {
			if v.Shape().RoutesHTTP(p.Protocol) && !n.namesAt(string(s.Hostname), p.Number, yield) {
				return false
			}
		}
		if p, ok := s.Port(foreignPort); !ok || !v.Shape().RoutesHTTP(p.Protocol) {
			continue
		}
		covers = true
		for _, address := range class.AllAddresses(s) {
			if !n.namesAt(address, foreignPort, yield) {
				return false
			}
		}
	}
	for pattern := range row.Hostname.Covers() {
		if covers && !n.namesAt(string(pattern), foreignPort, yield) {
			return false
		}
	}
	return true
}

// sidecarBuilder makes the virtual hosts of one port.
type sidecarBuilder struct {
	translator
	carrier route.Carrier
}

// host describes the virtual host of a service that the port's listener sees, or of a
// host without a service; nil if there is none. The frame has the host "*".
func (b sidecarBuilder) host(h host.Name) *envoy.VirtualHostOptions {
	if h == "*" {
		return nil
	}
	if s := b.service(h); s != nil {
		return &envoy.VirtualHostOptions{Domains: b.domains(s), Routes: b.routesTo(s)}
	}
	if b.carrier.Only != "" || b.port != foreignPort || b.mustGiveWay(h) {
		return nil
	}
	vs := b.view.VirtualServiceNamed(b.carrier.Listener, h)
	if vs == nil {
		return nil
	}
	routes := b.routes(vs)
	if len(routes) == 0 {
		return nil
	}
	return &envoy.VirtualHostOptions{Domains: b.requestDomains([]string{b.name(h)}), Routes: routes}
}

// service returns the service with this host that has a virtual host here, nil for none.
func (b sidecarBuilder) service(h host.Name) *mesh.ServiceRow {
	return b.carrier.Service(b.view, h)
}

// domains returns the names and addresses of a service, without those that belong to
// another service. If the route configuration serves only this service, it returns "*".
func (b sidecarBuilder) domains(s *mesh.ServiceRow) []string {
	if b.carrier.Only != "" {
		return []string{"*"}
	}
	out := b.names(s)
	for _, address := range b.view.Shape().Addresses(s) {
		if domain := addressDomain(address); b.ownsAddress(s, address, domain) && !slices.Contains(out, domain) {
			out = append(out, domain)
		}
	}
	return b.requestDomains(out)
}

// requestDomains returns domains in the form in which requests name them. In a route configuration
// for all ports they include the port, which requests to httpPort may omit.
func (b sidecarBuilder) requestDomains(domains []string) []string {
	if b.carrier.Whole == "" {
		return domains
	}
	var out []string
	for _, domain := range domains {
		if b.port == httpPort {
			out = append(out, domain)
		}
		out = append(out, names.HostPort(domain, uint32(b.port)))
	}
	return out
}

// addressDomain is the domain of requests to an IP address.
func addressDomain(address string) string {
	if ip, err := netip.ParseAddr(address); err == nil && ip.Is6() {
		return "[" + strings.ToLower(address) + "]"
	}
	return address
}

// ownsAddress says whether an address is a domain of the service: no service has it as its
// host, and no host before this one has the address.
func (b sidecarBuilder) ownsAddress(s *mesh.ServiceRow, address, domain string) bool {
	if b.service(host.Name(domain)) != nil {
		return false
	}
	for h := range b.view.HostsAt(address) {
		if h == string(s.Hostname) {
			break
		}
		if b.hasAddress(host.Name(h), domain) {
			return false
		}
	}
	return true
}

// hasAddress says whether a host has a virtual host here, and this address.
func (b sidecarBuilder) hasAddress(h host.Name, domain string) bool {
	s := b.service(h)
	return s != nil && slices.ContainsFunc(b.view.Shape().Addresses(s), func(a string) bool {
		return addressDomain(a) == domain
	})
}

// mustGiveWay says whether a host without a service must give way to services: an alias to
// the service that it stands for, a name to a service that has it as an address, a pattern
// to any service that it covers.
func (b sidecarBuilder) mustGiveWay(h host.Name) bool {
	if _, alias := b.view.AliasAt(b.carrier.Listener, h); alias {
		return true
	}
	if !h.IsWildcard() {
		for other := range b.view.HostsAt(string(h)) {
			if b.hasAddress(host.Name(other), string(h)) {
				return true
			}
		}
		return false
	}
	for other := range b.view.HTTPHostsUnder(h, b.port) {
		if b.service(host.Name(other)) != nil {
			return true
		}
	}
	return false
}

// routesTo describes the routes to a service: those of the VirtualService that applies,
// or one route to the service.
func (b sidecarBuilder) routesTo(s *mesh.ServiceRow) []envoy.RouteOptions {
	if vs := b.view.VirtualServiceAt(b.carrier.Listener, s.Hostname); vs != nil {
		if routes := b.routes(vs); len(routes) > 0 {
			return routes
		}
	}
	return []envoy.RouteOptions{b.defaultRoute(s)}
}

// defaultRoute describes the route to a service without a VirtualService.
func (b sidecarBuilder) defaultRoute(s *mesh.ServiceRow) envoy.RouteOptions {
	to := destination{hostname: string(s.Hostname), port: b.port, service: s}
	policies := to.hashPolicies(b.view)
	out := envoy.RouteOptions{Forward: &envoy.Forward{
		Clusters:     []envoy.WeightedCluster{{Name: to.cluster()}},
		HashPolicies: policies,
		GRPCWeb:      to.isGRPCWeb(),
		Retry:        b.retry(nil, len(policies) > 0),
	}}
	out.Operation = out.OperationName("", uint32(b.port))
	return out
}

// RoutesTo describes the routes to a port of a service on an egress listener: those of
// the VirtualService that applies, or one route to the service.
func RoutesTo(v *mesh.View, listener mesh.EgressListener, s *mesh.ServiceRow, port int) []envoy.RouteOptions {
	b := sidecarBuilder{translator{view: v, gateway: mesh.MeshGateway, port: port}, route.Carrier{Listener: listener, Port: port}}
	return b.routesTo(s)
}

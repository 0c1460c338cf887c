// Package workload describes the incoming traffic of a sidecar's application: the ports
// that it serves, each of which has a filter chain and a cluster.
package workload

import (
	"cmp"
	"net"
	"slices"
	"strconv"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/envoy/upstream"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/peer"
	"github.com/portolan-mesh/portolan/xds/names"
)

// Port is a port of the workload that takes requests: one that it serves for services, or
// an ingress listener of its Sidecar.
type Port struct {
	// Number is the workload's own port number.
	Number   int
	Protocol discovery.Protocol
	// Services are those that it serves there, the oldest first, which decides the
	// protocol. ServicePort is the oldest one's port, or Number for an ingress listener.
	Services    []*mesh.ServiceRow
	ServicePort int
	// Ingress is the ingress listener, nil for a port of services.
	Ingress *networking.IstioIngressListener
	// Beside is the address of an ingress listener whose port another before it has at another
	// address; empty for all others.
	Beside string
}

// Cluster is the name of the cluster for requests to the port.
func (p Port) Cluster() string { return names.Cluster(names.Inbound, uint32(p.Number), p.Beside, "") }

// Ports returns the ports of a workload, in order: the ingress listeners of its Sidecar,
// else, if the proxy captures traffic, the ports of its services. If two services share a
// port, the older decides.
func Ports(v *mesh.View) []Port {
	if ingress := v.Ingress(); len(ingress) > 0 {
		return ingressPorts(ingress)
	}
	if !v.Shape().Captures() {
		return nil
	}
	return ServicePorts(v)
}

// Find returns the port with a cluster; false if there is none.
func Find(v *mesh.View, cluster string) (Port, bool) {
	for _, p := range Ports(v) {
		if p.Cluster() == cluster {
			return p, true
		}
	}
	return Port{}, false
}

func ingressPorts(ingress []*networking.IstioIngressListener) []Port {
	var out []Port
	taken := map[int]bool{}
	for _, l := range ingress {
		number := int(l.GetPort().GetNumber())
		p := Port{
			Number: number, ServicePort: number, Ingress: l,
			Protocol: discovery.ParseProtocol(l.GetPort().GetProtocol()),
		}
		if p.TLS() != nil {
			p.Protocol = protocolInsideTLS(p.Protocol)
		}
		if taken[number] {
			p.Beside = l.GetBind()
		}
		taken[number] = true
		out = append(out, p)
	}
	return ordered(out)
}

// protocolInsideTLS is the protocol inside the TLS that a port terminates: TCP if none is declared.
func protocolInsideTLS(p discovery.Protocol) discovery.Protocol {
	switch p {
	case discovery.HTTPS:
		return discovery.HTTP
	case discovery.TLS, discovery.Unsupported:
		return discovery.TCP
	}
	return p
}

// TLS returns the settings with which the proxy terminates TLS on the port, nil if it
// does not.
func (p Port) TLS() *networking.ServerTLSSettings {
	switch tls := p.Ingress.GetTls(); tls.GetMode() {
	case networking.ServerTLSSettings_SIMPLE, networking.ServerTLSSettings_MUTUAL, networking.ServerTLSSettings_OPTIONAL_MUTUAL:
		return tls
	}
	return nil
}

// servedPort is a service that the workload serves on one of its ports.
type servedPort struct {
	number  int
	port    discovery.Port
	service *mesh.ServiceRow
}

// ServicePorts returns the ports for services of the workload's own namespace, in order, also where the
// ingress listeners of its Sidecar are in their place. Other
// namespaces may not decide what reaches it. (Istio: GetProxyServiceTargets.)
func ServicePorts(v *mesh.View) []Port {
	var all []servedPort
	for _, s := range v.InboundServices() {
		if !v.InNamespace(s.Service.Namespace) {
			continue
		}
		for _, e := range s.Endpoints {
			i := slices.IndexFunc(s.Service.Ports(), e.IsFor)
			if i < 0 || e.Port == 0 {
				continue
			}
			if p := s.Service.Ports()[i]; p.Protocol.IsServed() {
				all = append(all, servedPort{e.Port, p, s.Service})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b servedPort) int {
		return cmp.Or(discovery.CompareServices(a.service.Service(), b.service.Service()), cmp.Compare(a.port.Number, b.port.Number))
	})
	at := map[int]int{}
	var out []Port
	for _, s := range all {
		i, known := at[s.number]
		if !known {
			i, at[s.number] = len(out), len(out)
			out = append(out, Port{Number: s.number, Protocol: s.port.Protocol, ServicePort: s.port.Number})
		}
		if !slices.Contains(out[i].Services, s.service) {
			out[i].Services = append(out[i].Services, s.service)
		}
	}
	return ordered(out)
}

// FirstService returns the oldest service in the workload's own namespace that it serves,
// nil for none.
func FirstService(v *mesh.View) *mesh.ServiceRow {
	var first *mesh.ServiceRow
	for _, s := range v.InboundServices() {
		if v.InNamespace(s.Service.Namespace) && (first == nil || discovery.CompareServices(s.Service.Service(), first.Service()) < 0) {
			first = s.Service
		}
	}
	return first
}

// ordered sorts the ports by number and keeps the first of each address.
func ordered(ports []Port) []Port {
	slices.SortStableFunc(ports, func(a, b Port) int { return cmp.Compare(a.Number, b.Number) })
	return slices.CompactFunc(ports, func(a, b Port) bool { return a.Number == b.Number && a.Beside == b.Beside })
}

// Captured says whether connections to the port are redirected to the proxy, which then
// has no socket for it.
func (p Port) Captured(of mesh.Shape) bool {
	return of.Captures() && p.Ingress.GetCaptureMode() != networking.CaptureMode_NONE
}

// Mode says how the proxy takes connections to a port of the workload; 0 stands for ports that
// nobody names. Without a certificate it can take plaintext alone, and refuses everything where
// mutual TLS is demanded.
func Mode(v *mesh.View, port int) peer.Mode {
	scope, own := v.OwnPeers()
	mode := scope.Serve(own, port)
	if mode == peer.Permissive && !v.HasCertificate() {
		return peer.Disable
	}
	return mode
}

// NamedPorts returns the ports that the policy of the workload names, in order.
func NamedPorts(v *mesh.View) []int {
	scope, own := v.OwnPeers()
	return scope.Ports(own)
}

// Application returns where requests to the port go. original means their original
// destination; then to is empty. ok is false if the ingress listener's endpoint has no
// usable address.
func (p Port) Application(v *mesh.View) (to upstream.Endpoint, original, ok bool) {
	switch given := p.Ingress.GetDefaultEndpoint(); {
	case given == "" && p.Captured(v.Shape()) && v.Mesh(mesh.InboundTrafficPolicy).PassesInbound():
		return upstream.Endpoint{}, true, true
	case given == "":
		return upstream.Endpoint{Host: loopback(v.Shape()), Port: uint32(p.Number)}, false, true
	case names.IsUnix(given):
		return upstream.Endpoint{Host: given}, false, true
	default:
		to, ok = endpoint(v, given)
		return to, false, ok
	}
}

// loopback is the loopback address for proxies of a shape.
func loopback(of mesh.Shape) string {
	if of.IPv6 && !of.IPv4 {
		return "::1"
	}
	return "127.0.0.1"
}

// endpoint parses the endpoint of an ingress listener. The unspecified address stands for
// the workload's own address, and an empty one for loopback.
func endpoint(v *mesh.View, given string) (upstream.Endpoint, bool) {
	address, text, err := net.SplitHostPort(given)
	if err != nil {
		return upstream.Endpoint{}, false
	}
	number, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return upstream.Endpoint{}, false
	}
	switch address {
	case "":
		address = loopback(v.Shape())
	case "0.0.0.0", "::":
		address = v.InstanceIP(address == "::")
	}
	return upstream.Endpoint{Host: address, Port: uint32(number)}, address != ""
}

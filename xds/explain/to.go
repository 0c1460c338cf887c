package explain

import (
	"cmp"
	"net/http"
	"net/netip"
	"slices"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/xds/generate/route"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/names"
	"github.com/portolan-mesh/portolan/xds/simulate"
)

// anywhere are documentation addresses of IPv4 and IPv6 (RFC 5737, RFC 3849), which no machine
// has. They stand for DNS answers.
var anywhere = map[bool]string{true: "192.0.2.1", false: "2001:db8::1"}

// target is what a gRPC client calls.
func (e *explainer) target() string { return names.HostPort(e.host, uint32(e.port)) }

// request describes the client's request, and says whether its address is known. If the proxy
// captures no traffic, clients connect to one of its listeners.
func (e *explainer) request(p *simulate.Proxy) (r simulate.Request, known bool) {
	if e.proxy.Type == discovery.Proxyless {
		return simulate.Request{
			Protocol: simulate.GRPC, Host: e.target(), Port: e.port, Path: e.path, Method: http.MethodPost, Headers: e.headers, Time: e.at,
		}, false
	}
	ip, _ := netip.ParseAddr(e.host)
	shape, service := e.view().Shape(), e.service(ip)
	r = simulate.Request{
		Port: e.port, Protocol: simulate.HTTP, Path: e.path, Method: e.method, Headers: e.headers, Time: e.at,
		Host: cmp.Or(e.authority, e.host),
	}
	if e.proxy.Type == discovery.Router {
		e.tls = e.tls || e.allHTTPS()
		r.Source = e.clientAddress()
	}
	if e.authority == "" && !(e.port == 80 || e.port == 443 && e.tls) {
		r.Host = names.HostPort(e.host, uint32(e.port))
	}
	name := cmp.Or(e.sni, e.host) // the SNI of a TLS client
	if e.sni == "" && ip.IsValid() {
		name = ""
	}
	switch byBytes := !e.http && e.proxy.Type == discovery.Sidecar; {
	case e.tls && e.proxy.Type == discovery.Router && e.passesTLS():
		r.Protocol, r.SNI = simulate.TLS, name
	case e.tls && e.proxy.Type == discovery.Router:
		r.Protocol, r.SNI = simulate.HTTPS, name
	case e.tls:
		r.Protocol, r.SNI = simulate.TLS, cmp.Or(e.sni, e.host)
	case e.sni != "":
		r.Protocol, r.SNI = simulate.TLS, e.sni
	case byBytes && !ip.IsValid() && isTLS(service, e.port): // the SNI is the name that clients call
		r.Protocol, r.SNI = simulate.TLS, e.host
	case !e.http && e.proxy.Type == discovery.Router && e.passesTLS():
		r.Protocol, r.SNI = simulate.TLS, name
	case byBytes && isTCP(service, e.port), !e.http && e.proxy.Type == discovery.Router && e.passesBytes():
		r.Protocol = simulate.TCP
	}
	switch {
	case e.via != "":
		r = e.asReceived(p, r)
	case e.proxy.Type == discovery.Router:
		r.Port = e.listeningPort()
		r.Address = listeningAt(p, r.Port, cmp.Or(addressText(ip), loopback(shape)))
	case ip.IsValid():
		r.Address = addressText(ip)
	case shape.Captures():
		if r.Address = clientAddress(e.view(), service, e.port); r.Address == "" {
			r.Address = anywhere[shape.IPv4]
			return r, false
		}
	default:
		if service != nil && shape.DNSCapture {
			if at := shape.Assigned(service); len(at) > 0 {
				r.Address = at[0]
				return r, true
			}
		}
		r.Address = listeningAt(p, e.port, e.bindOf(service, loopback(shape)))
	}
	return r, true
}

// bindOf returns the address of the egress listener that carries a service, of several with its
// port; address if there is no such.
func (e *explainer) bindOf(service *mesh.ServiceRow, address string) string {
	if service == nil {
		return address
	}
	for _, l := range route.ListenersOf(e.view(), e.port) {
		if l.Bind != "" && e.view().ServiceAt(l, service.Hostname) != nil {
			return l.Bind
		}
	}
	return address
}

// service returns the service that the request is for, nil for none: by one of its names or a
// pattern or, if the host is an address, by one of its addresses or of its workloads'.
func (e *explainer) service(ip netip.Addr) *mesh.ServiceRow {
	if !ip.IsValid() {
		for _, h := range e.view().HostsFor(e.host) {
			if s := e.view().Reached(h); s != nil {
				return s
			}
		}
		return e.patternService()
	}
	for h := range e.view().HostsAt(addressText(ip)) {
		if s := e.view().Service(host.Name(h)); s != nil {
			if _, ok := s.Port(e.port); ok {
				return s
			}
		}
	}
	for _, l := range route.ListenersOf(e.view(), e.port) {
		if !e.view().Shape().Captures() || l.Port != 0 {
			break // only captured connections to all ports go by the addresses of workloads
		}
		if all := e.view().HeadlessAt(l, addressText(ip), e.port); len(all) > 0 {
			return all[0]
		}
	}
	return nil
}

// clientAddress returns the address at which clients of a proxy call a port of a service, if its
// name resolves to what the mesh knows. That is the first address of a family that the proxy has,
// the first of a range, or that of the first workload of a headless service; empty for none.
func clientAddress(v *mesh.View, service *mesh.ServiceRow, port int) string {
	if service == nil {
		return ""
	}
	all := v.Shape().Addresses(service)
	for _, r := range service.Ranges() {
		all = append(all, r.Addr().String())
	}
	for _, address := range slices.AppendSeq(all, v.Sockets(service, port)) {
		if ip, err := netip.ParseAddr(address); err == nil && v.Shape().HasFamily(ip) {
			return addressText(ip)
		}
	}
	return ""
}

// isTCP reports whether a service declares a protocol other than HTTP on a port.
func isTCP(service *mesh.ServiceRow, port int) bool {
	if service == nil {
		return false
	}
	p, ok := service.Port(port)
	return ok && p.Protocol != discovery.Unsupported && !p.Protocol.IsHTTP()
}

func isTLS(service *mesh.ServiceRow, port int) bool {
	if service == nil {
		return false
	}
	p, ok := service.Port(port)
	return ok && p.Protocol.IsTLS()
}

func loopback(shape mesh.Shape) string {
	if shape.IPv4 {
		return "127.0.0.1"
	}
	return "::1"
}

func addressText(ip netip.Addr) string {
	if !ip.IsValid() {
		return ""
	}
	return ip.Unmap().String()
}

// listeningAt returns an address at which the proxy listens on a port: the preferred one
// if it does there, else the address of its first listener with the port.
func listeningAt(p *simulate.Proxy, port int, preferred string) string {
	first := ""
	for _, name := range p.Listeners() {
		a := p.Listener(name).GetAddress().GetSocketAddress()
		own, _ := netip.ParseAddr(a.GetAddress())
		if int(a.GetPortValue()) != port {
			continue
		}
		if a.GetAddress() == preferred || own.IsUnspecified() {
			return preferred
		}
		first = cmp.Or(first, a.GetAddress())
	}
	return cmp.Or(first, preferred)
}

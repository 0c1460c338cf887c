package listener

import (
	"net/netip"

	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/service"
	"github.com/portolan-mesh/portolan/xds/names"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// egressNames yields the listeners of egress listeners that have a socket, or both a port
// and a known address.
func egressNames(v *mesh.View, yield func(string) bool) bool {
	for _, l := range v.Egress() {
		if l.Socket != "" && !yield(names.Listener(l.Socket, 0)) {
			return false
		}
		if l.Port == 0 {
			continue
		}
		bind := bindOf(v, l)
		if bind == "" && l.TakesHTTP() {
			bind = v.Shape().Wildcard()
		}
		if bind != "" && !yield(names.Listener(bind, uint32(l.Port))) {
			return false
		}
	}
	return true
}

// outbound makes the listener of a port at the one address of an egress listener, nil if
// no service is behind it. HTTP goes to the port's routes, everything else to one
// service, since only the port identifies a connection. If the port has both, the first
// bytes decide. If that service speaks TLS, other TLS services get the connections with
// their SNI names.
func outbound(v *mesh.View, name string, l mesh.EgressListener, port int) (proto.Message, []resource.Need, error) {
	if !l.Protocol.IsServed() && !l.IsHTTPProxy() {
		return nil, nil, nil
	}
	c := chains{view: v, egress: l, name: name, port: port, whole: l.IsHTTPProxy()}
	http := v.CarriesHTTP(l, port)
	var tcp *mesh.ServiceRow
	if l.Port == 0 || !http {
		tcp = tcpService(v, l, port)
	}
	switch {
	case http && tcp != nil:
		c.detectHTTP(c.shared(), nil)
		c.allBytesTo(tcp)
	case http:
		c.http(c.shared(), envoy.FilterChainOptions{})
	case tcp != nil:
		c.allBytesTo(tcp)
	default:
		return nil, nil, nil
	}
	o := envoy.ListenerOptions{Host: bindOf(v, l), Port: uint32(port), Unbound: !bindsSockets(v, l)}
	if l.Bind == "" && bindsSockets(v, l) {
		o.MoreHosts = moreLoopbacks(v.Shape())
	}
	return c.listener(o)
}

// allBytesTo sends everything but HTTP to a service, or if it speaks TLS, to it and all other
// TLS services. A dynamic service gets only connections with its own names. TLS is not
// inspected if the oldest service may speak first.
func (c *chains) allBytesTo(s *mesh.ServiceRow) {
	ip, err := netip.ParseAddr(bindOf(c.view, c.egress))
	if (isDynamic(s) || err == nil && ip.IsUnspecified()) && speaksTLS(c.egress, s, c.port) {
		c.addBySNI(service.PortTLS)
	} else if c.addBytes(s); speaksTLS(c.egress, s, c.port) {
		c.addBySNI(service.PortTLS)
	}
	c.orPass()
}

// tcpService returns the service that gets the TCP connections of a port: the oldest that
// the listener sees. (Istio: if services collide, the first keeps the port.) If the
// listener has its own port, which is then not HTTP, services that speak HTTP on the port
// count, too.
func tcpService(v *mesh.View, l mesh.EgressListener, port int) *mesh.ServiceRow {
	var oldest *mesh.ServiceRow
	for s := range v.ServicesOnPort(l, service.PortTCP, port) {
		if takesBytes(l, s, port) {
			oldest = s
			break
		}
	}
	if l.Port == 0 {
		return oldest
	}
	for s := range v.ServicesOnPort(l, service.PortHTTP, port) {
		if takesBytes(l, s, port) {
			return olderService(oldest, s)
		}
	}
	return oldest
}

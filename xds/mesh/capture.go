package mesh

import (
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/xds/mesh/service"
	"github.com/portolan-mesh/portolan/xds/mesh/sidecar"
)

// CarriesHTTP says whether an egress listener routes requests to a port by HTTP, whatever
// their address. An HTTP listener does if it sees a service that has the port. A listener
// for all ports does if it sees a service that speaks HTTP on the port, or that declares
// no protocol there while the proxy captures traffic. A listener for an HTTP proxy always
// does.
func (v *View) CarriesHTTP(l EgressListener, port int) bool {
	switch {
	case l.IsHTTPProxy():
		return true
	case l.Port != 0:
		return l.Protocol.IsHTTP() && v.SeesPort(l, port)
	}
	return v.PortUsed(l, service.PortHTTP, port) || v.Shape().Captures() && v.PortUsed(l, service.PortUndeclared, port)
}

// SeesPort says whether an egress listener sees a service that has a port.
func (v *View) SeesPort(l EgressListener, port int) bool {
	return v.PortUsed(l, service.PortHTTP, port) || v.PortUsed(l, service.PortTCP, port)
}

// InboundConnectionPool is the Sidecar's limit for connections to the workload's
// application, on all its ports; nil if the Sidecar sets none.
func (v *View) InboundConnectionPool() *networking.ConnectionPoolSettings {
	if s := v.ask(Self, selfSidecar, "").(*sidecar.Sidecar); s != nil {
		return s.Spec.GetInboundConnectionPool()
	}
	return nil
}

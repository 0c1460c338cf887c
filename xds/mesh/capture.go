package mesh

import (
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/xds/mesh/service"
	"github.com/portolan-mesh/portolan/xds/mesh/sidecar"
)

// CarriesHTTP says whether an egress listener routes requests by HTTP on a port,
// whatever their address. It does if the listener is for HTTP and sees a service that
// has the port, or if it is for all ports and sees a service that uses the port so. A
// listener for an HTTP proxy always does.
func (v *View) CarriesHTTP(l EgressListener, port int) bool {
	switch {
	case l.IsHTTPProxy():
		return true
	case l.Port != 0:
		return l.Protocol.IsHTTP() && v.Carries(l, port)
	}
	return v.PortUsed(l, service.PortHTTP, port) || v.Shape().Captures() && v.PortUsed(l, service.PortUndeclared, port)
}

// Carries says whether an egress listener sees a service that has a port.
func (v *View) Carries(l EgressListener, port int) bool {
	return v.PortUsed(l, service.PortHTTP, port) || v.PortUsed(l, service.PortTCP, port)
}

// InboundConnectionPool limits the connections to the workload's application, as
// its Sidecar says for all of its ports; nil where it says nothing.
func (v *View) InboundConnectionPool() *networking.ConnectionPoolSettings {
	if s := v.ask(Self, selfSidecar, "").(*sidecar.Sidecar); s != nil {
		return s.Spec.GetInboundConnectionPool()
	}
	return nil
}

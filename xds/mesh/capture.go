package mesh

import (
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery"
)

// Captures says whether the traffic of the workload is redirected to the proxy,
// so that its listeners stand for the addresses that clients mean.
func (s Shape) Captures() bool {
	return s.Type == discovery.Sidecar && s.Interception != discovery.InterceptionNone
}

// RoutesHTTP says whether requests to a port of a protocol are routed by HTTP:
// where it is declared, and where traffic is captured also where nothing is, for
// then the proxy looks for it.
func (s Shape) RoutesHTTP(p discovery.Protocol) bool {
	return p.IsHTTP() || p == discovery.Unsupported && s.Captures()
}

// CarriesHTTP says whether requests are routed by HTTP on a port of an egress
// listener, whatever address they are for: where the listener is for HTTP, or is
// for all ports and sees a service that claims this one so.
func (v *View) CarriesHTTP(l EgressListener, port int) bool {
	if l.Port != 0 {
		return l.Protocol.IsHTTP()
	}
	return v.Claimed(l, ClaimHTTP, port) || v.Shape().Captures() && v.Claimed(l, ClaimUndeclared, port)
}

// PassesInbound says whether what comes in to a workload goes on to the address
// that the client meant, which is the default, or to the loopback address.
func (c *Config) PassesInbound() bool {
	return c.GetInboundTrafficPolicy().GetMode() == meshv1alpha1.MeshConfig_InboundTrafficPolicy_PASSTHROUGH
}

// InboundConnectionPool limits the connections to the workload's application, as
// its Sidecar says for all of its ports; nil where it says nothing.
func (v *View) InboundConnectionPool() *networking.ConnectionPoolSettings {
	if s := v.ask(Self, selfSidecar, "").(*Sidecar); s != nil {
		return s.Spec.GetInboundConnectionPool()
	}
	return nil
}

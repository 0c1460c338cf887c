package sidecar

import (
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/xds/names"
)

// Scope decides what a workload sees: its namespace and the Sidecar that
// applies. Without a Sidecar (nil) it sees everything that is exported to its
// namespace. Scopes are comparable: equal scopes see the same.
type Scope struct {
	Namespace string
	Sidecar   *Sidecar
}

// Listener is one egress listener of a scope, the catch-all if no Sidecar applies. Port
// is 0 for a Unix domain socket, and for a listener that serves all ports without their
// own listener.
type Listener struct {
	Index int
	Port  int
	// Socket is the listener's Unix domain socket, "unix://" and the path; empty for
	// none.
	Socket string
	// Protocol is the protocol of the port, Unsupported if it has none.
	Protocol discovery.Protocol
	// Bind is the address as given, empty for the default.
	Bind string
	// Uncaptured listeners bind their own address or socket even if traffic is captured.
	Uncaptured bool
	// Routes is the name of the listener's route configuration, if a listener before it has the
	// same port at another address; empty for the one of the port.
	Routes string
}

// TakesHTTP says whether the protocol of the listener's port makes it route by HTTP.
func (l Listener) TakesHTTP() bool { return l.Protocol.IsHTTP() || l.IsHTTPProxy() }

// IsHTTPProxy says whether clients use the listener as their HTTP proxy. Such clients
// name the host and port they want, so the listener carries services of all ports.
func (l Listener) IsHTTPProxy() bool { return l.Protocol == discovery.HTTPProxy }

// Egress returns the egress listeners of the scope. There is always one.
func (s Scope) Egress() []Listener {
	if s.Sidecar == nil || len(s.Sidecar.Spec.GetEgress()) == 0 {
		return []Listener{{}}
	}
	var out []Listener
	taken := map[int]bool{}
	for i, e := range s.Sidecar.Spec.GetEgress() {
		l := Listener{
			Index: i, Port: int(e.GetPort().GetNumber()), Bind: e.GetBind(),
			Protocol:   discovery.ParseProtocol(e.GetPort().GetProtocol()),
			Uncaptured: e.GetCaptureMode() == networking.CaptureMode_NONE,
		}
		if e.GetPort() != nil && l.Port == 0 {
			l.Socket, l.Uncaptured = l.Bind, true
		}
		if l.Port != 0 && taken[l.Port] {
			l.Routes = names.Listener(l.Bind, uint32(l.Port))
		}
		taken[l.Port] = true
		out = append(out, l)
	}
	return out
}

// Restricted says whether the scope sees less than all that is exported to its
// namespace.
func (s Scope) Restricted() bool {
	return s.Sidecar != nil && len(s.Sidecar.Spec.GetEgress()) > 0
}

// ImportsService ranks how an egress listener imports a service. A listener that the
// scope does not have imports nothing: a recorded query of another scope may name one.
func (s Scope) ImportsService(listener int, h host.Name, namespace string) Rank {
	if !s.Restricted() {
		return OfAny
	}
	if listener >= len(s.Sidecar.egress) {
		return NotImported
	}
	return s.Sidecar.egress[listener].imports(s.Namespace, namespace, h, h.SubsetOf)
}

// ImportsRoutes says whether an egress listener imports a VirtualService of a namespace:
// one of its hosts must overlap with an imported host.
func (s Scope) ImportsRoutes(listener int, namespace string, hosts []host.Name) bool {
	if !s.Restricted() {
		return true
	}
	if listener >= len(s.Sidecar.egress) {
		return false
	}
	for _, h := range hosts {
		if s.Sidecar.egress[listener].imports(s.Namespace, namespace, h, h.Matches) != NotImported {
			return true
		}
	}
	return false
}

// Ingress returns the ingress listeners of the scope's Sidecar, if any.
func (s Scope) Ingress() []*networking.IstioIngressListener {
	if s.Sidecar == nil {
		return nil
	}
	return s.Sidecar.Spec.GetIngress()
}

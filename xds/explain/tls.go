package explain

import (
	"fmt"
	"slices"
	"strings"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/generate/route"
	"github.com/portolan-mesh/portolan/xds/generate/transport"
	"github.com/portolan-mesh/portolan/xds/mesh/routing"
	"github.com/portolan-mesh/portolan/xds/simulate"
)

// allHTTPS reports whether all listeners of a gateway's port are for HTTPS.
func (e *explainer) allHTTPS() bool {
	listeners := route.GatewayListenersAt(e.view(), e.port)
	return len(listeners) > 0 && !slices.ContainsFunc(listeners, func(l *routing.Listener) bool {
		return slices.ContainsFunc(l.Servers, func(s *routing.Server) bool { return s.Kind() != routing.HTTPS })
	})
}

// lacking says what the servers of a gateway on the port lack to accept connections; empty if
// they lack nothing.
func (e *explainer) lacking() string {
	if e.proxy.Type != discovery.Router {
		return ""
	}
	var out []string
	for _, l := range route.GatewayListenersAt(e.view(), e.port) {
		for _, s := range l.Servers {
			if !s.Kind().TerminatesTLS() {
				continue
			}
			for _, lack := range transport.ServerLacks(e.view(), s.Spec.GetTls(), transport.ServerOptions{}) {
				out = append(out, fmt.Sprintf("the server of %s for %s is not open: %s", s.Gateway.Key(), strings.Join(s.Names, ", "), lack))
			}
		}
	}
	return strings.Join(out, "; ")
}

// whyNoChain says why no filter chain matches a connection.
func (e *explainer) whyNoChain(r simulate.Request) string {
	encrypted := r.Protocol == simulate.TLS || r.Protocol == simulate.HTTPS
	switch lacking := e.lacking(); {
	case e.proxy.Type != discovery.Router:
	case encrypted && lacking != "":
		return fmt.Sprintf("no server is for the name %q: %s", r.SNI, lacking)
	case encrypted:
		return fmt.Sprintf("no server is for the name %q", r.SNI)
	case e.port > 0:
		return "its servers take TLS alone"
	}
	return "no filter chain of it matches"
}

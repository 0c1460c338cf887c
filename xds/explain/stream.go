package explain

import (
	"slices"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/generate/listener"
	"github.com/portolan-mesh/portolan/xds/generate/route"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/routing"
	"github.com/portolan-mesh/portolan/xds/simulate"
)

// isStream reports whether the proxy forwards bytes and sees no HTTP requests.
func isStream(r simulate.Request) bool {
	return r.Protocol == simulate.TCP || r.Protocol == simulate.TLS
}

// streamRoute describes the tcp or tls route of a connection, nil if no VirtualService has one.
func (e *explainer) streamRoute(request simulate.Request, result simulate.Result) *Route {
	key, ok := generate.KeyOfPath(result.Config())
	if !ok || key.Kind != schema.VirtualService {
		return nil
	}
	out := &Route{Object: key.String()}
	switch vs := e.push.VirtualService(key.Path()); {
	case vs == nil:
	case e.proxy.Type == discovery.Router:
		out.Field, _ = listener.GatewayFieldOf(e.view(), result.Listener, vs, result.Chain)
	default:
		egress, port := e.egressAt(request.Address, request.Port), request.Port
		if socket, ok := e.socket(); ok {
			_, of := e.view().SocketService(socket)
			egress, port = socket, of.Number
		}
		out.Field, _ = listener.FieldOf(e.view(), egress, port, vs, result.Chain)
	}
	return out
}

// egressAt returns the egress listener that takes connections to an address and port.
func (e *explainer) egressAt(address string, port int) (out mesh.EgressListener) {
	for i, l := range route.ListenersOf(e.view(), port) {
		if i == 0 || l.Bind == address {
			out = l
		}
	}
	return out
}

// gatewayListeners returns the listeners of the gateway's port or socket that the request names.
func (e *explainer) gatewayListeners() []*routing.Listener {
	return slices.DeleteFunc(route.GatewayListenersAt(e.view(), e.serverPort()), func(l *routing.Listener) bool {
		return e.via != "" && l.Bind != e.via
	})
}

// passesTLS reports whether a gateway forwards connections for the host as bytes, with or
// without terminating TLS. The server with the most specific host on the port decides.
func (e *explainer) passesTLS() bool {
	var best *routing.Server
	var most host.Name
	for _, l := range e.gatewayListeners() {
		for _, s := range l.Servers {
			for _, h := range s.Hosts {
				if s.Kind().IsTLS() && host.Name(e.host).SubsetOf(h.Name) && (best == nil || h.Name.SubsetOf(most)) {
					best, most = s, h.Name
				}
			}
		}
	}
	return best != nil && !best.Kind().RoutesHTTP()
}

// passesBytes reports whether a gateway forwards the connections to a port or socket as bytes:
// there is a server for TCP, and none for HTTP.
func (e *explainer) passesBytes() bool {
	listeners := e.gatewayListeners()
	return len(listeners) > 0 && !slices.ContainsFunc(listeners, func(l *routing.Listener) bool {
		return slices.ContainsFunc(l.Servers, func(s *routing.Server) bool { return s.Kind().RoutesHTTP() })
	})
}

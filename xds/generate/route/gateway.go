package route

import (
	"slices"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/routing"
	"github.com/portolan-mesh/portolan/xds/names"
)

// GatewayListeners returns the listeners of a gateway, as routing.MergeGateways has them.
func GatewayListeners(v *mesh.View) []*routing.Listener { return listeners(v.Gateway()) }

// GatewayListenersAt returns the listeners of a port. Those of Unix domain sockets have
// port 0.
func GatewayListenersAt(v *mesh.View, port int) []*routing.Listener {
	return slices.DeleteFunc(listeners(v.GatewayAt(port)), func(l *routing.Listener) bool { return l.Port != port })
}

func listeners(gateway *routing.MergedGateway) []*routing.Listener {
	if gateway == nil {
		return nil
	}
	return gateway.Listeners
}

// HTTPServers returns the servers of all listeners that route requests.
func HTTPServers(v *mesh.View) []*routing.Server { return routingHTTP(GatewayListeners(v)) }

func routingHTTP(listeners []*routing.Listener) []*routing.Server {
	var out []*routing.Server
	for _, l := range listeners {
		for _, s := range l.Servers {
			if s.Kind().RoutesHTTP() {
				out = append(out, s)
			}
		}
	}
	return out
}

// GatewayListenerName is the name of a listener.
func GatewayListenerName(l *routing.Listener) string { return names.Listener(l.Bind, uint32(l.Port)) }

// GatewayName names the routes of a server. Those of plaintext share them.
func GatewayName(s *routing.Server) string {
	port, bind := s.Spec.GetPort(), s.Spec.GetBind()
	if s.Kind() == routing.HTTPS {
		of := s.Gateway.Config
		return names.GatewayHTTPSRouteConfig(port.GetNumber(), port.GetName(), of.Name, of.Namespace, bind)
	}
	return names.GatewayHTTPRouteConfig(port.GetNumber(), bind)
}

// ServersOf are the servers that share a route configuration.
func ServersOf(v *mesh.View, name string) []*routing.Server {
	port, ok := names.GatewayRoutePort(name)
	if !ok {
		return nil
	}
	return slices.DeleteFunc(routingHTTP(GatewayListenersAt(v, port)), func(s *routing.Server) bool { return GatewayName(s) != name })
}

func gatewayNames(v *mesh.View, yield func(string) bool) {
	for _, s := range HTTPServers(v) {
		if !yield(GatewayName(s)) {
			return
		}
	}
}

// blackHole stands in a route configuration of a gateway that has no hosts.
func blackHole(port int) *routev3.VirtualHost {
	return envoy.VirtualHost(envoy.VirtualHostOptions{
		Name: names.BlackHoleVirtualHost(uint32(port)), Domains: []string{"*"},
	})
}

// isBlackHole knows it by its name.
func isBlackHole(name string) bool { return strings.HasPrefix(name, blackHolePrefix) }

var blackHolePrefix = strings.TrimSuffix(names.BlackHoleVirtualHost(0), "0")

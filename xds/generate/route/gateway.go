package route

import (
	"net/http"
	"slices"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/routing"
	"github.com/portolan-mesh/portolan/xds/names"
)

// GatewayListeners returns the listeners of a gateway, as routing.MergeGateways merges
// them.
func GatewayListeners(v *mesh.View) []*routing.Listener {
	if gateway := v.Gateway(); gateway != nil {
		return gateway.Listeners
	}
	return nil
}

// GatewayListenersAt returns the listeners of servers with a port, even if these listen
// on another one. If there are none, it returns those that listen on the port. Unix
// domain sockets have port 0.
func GatewayListenersAt(v *mesh.View, port int) []*routing.Listener {
	var out, on []*routing.Listener
	for _, l := range GatewayListeners(v) {
		if slices.ContainsFunc(l.Servers, func(s *routing.Server) bool { return s.Port() == port }) {
			out = append(out, l)
		}
		if l.Port == port {
			on = append(on, l)
		}
	}
	if len(out) == 0 {
		return on
	}
	return out
}

// GatewayRoutes returns the route configurations of a gateway.
func GatewayRoutes(v *mesh.View) []*routing.Routes {
	if gateway := v.Gateway(); gateway != nil {
		return gateway.Routes
	}
	return nil
}

func gatewayNames(v *mesh.View, yield func(string) bool) {
	for _, r := range GatewayRoutes(v) {
		if !yield(r.Name) {
			return
		}
	}
}

// blackHole is the virtual host of a gateway's route configuration that has no others.
func blackHole(port int) *routev3.VirtualHost {
	return envoy.VirtualHost(envoy.VirtualHostOptions{
		Name: names.BlackHoleVirtualHost(uint32(port)), Domains: []string{"*"},
	})
}

// misdirected answers requests for hosts of other TLS servers of the port, which came on a
// connection that the client opened for this one: browsers reuse a connection for every host of
// its certificate. On the answer 421 they open another (RFC 9110, section 15.5.20). The
// other server may demand a certificate of clients, so the request must not pass here.
// https://github.com/istio/istio/issues/13589
func misdirected(r *routing.Routes) *routev3.VirtualHost {
	return envoy.VirtualHost(envoy.VirtualHostOptions{
		Name: names.MisdirectedVirtualHost(uint32(r.Port())), Domains: r.Elsewhere,
		Routes: []envoy.RouteOptions{{DirectResponse: &envoy.DirectResponse{Status: http.StatusMisdirectedRequest}}},
	})
}

// IsBlackHole says whether a virtual host of this name is a black hole.
func IsBlackHole(name string) bool { return strings.HasPrefix(name, blackHolePrefix) }

var blackHolePrefix = strings.TrimSuffix(names.BlackHoleVirtualHost(0), "0")

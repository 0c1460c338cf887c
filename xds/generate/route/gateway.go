package route

import (
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/routing"
	"github.com/portolan-mesh/portolan/xds/names"
)

// GatewayListeners returns the listeners of a gateway, as routing.MergeGateways has them.
func GatewayListeners(v *mesh.View) []*routing.Listener {
	if gateway := v.Gateway(); gateway != nil {
		return gateway.Listeners
	}
	return nil
}

// GatewayListenersAt returns the listeners of a port. Those of Unix domain sockets have
// port 0.
func GatewayListenersAt(v *mesh.View, port int) []*routing.Listener {
	var out []*routing.Listener
	for _, l := range GatewayListeners(v) {
		if l.Port == port {
			out = append(out, l)
		}
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

// blackHole stands in a route configuration of a gateway that has no hosts.
func blackHole(port int) *routev3.VirtualHost {
	return envoy.VirtualHost(envoy.VirtualHostOptions{
		Name: names.BlackHoleVirtualHost(uint32(port)), Domains: []string{"*"},
	})
}

// isBlackHole knows it by its name.
func isBlackHole(name string) bool { return strings.HasPrefix(name, blackHolePrefix) }

var blackHolePrefix = strings.TrimSuffix(names.BlackHoleVirtualHost(0), "0")

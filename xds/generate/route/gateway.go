package route

import (
	"slices"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/routing"
)

// GatewayServers returns the servers of a gateway that route plaintext HTTP, the oldest
// first. Servers with one address and port share a listener, and the route
// configuration GatewayName.
func GatewayServers(v *mesh.View) []*routing.Server { return httpServers(v.Gateway()) }

// GatewayServersAt returns the servers of a port.
func GatewayServersAt(v *mesh.View, port int) []*routing.Server {
	return slices.DeleteFunc(httpServers(v.GatewayAt(port)), func(s *routing.Server) bool { return s.Port() != port })
}

func httpServers(gateway *routing.MergedGateway) []*routing.Server {
	if gateway == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(gateway.Servers), func(s *routing.Server) bool {
		return !discovery.ParseProtocol(s.Spec.GetPort().GetProtocol()).IsHTTP() || envoy.IsUnix(s.Spec.GetBind())
	})
}

// GatewayName names the routes of a server.
func GatewayName(s *routing.Server) string {
	return envoy.GatewayHTTPRouteConfigName(uint32(s.Port()), s.Spec.GetBind())
}

// ServersOf are the servers that share a route configuration.
func ServersOf(v *mesh.View, name string) []*routing.Server {
	return slices.DeleteFunc(GatewayServers(v), func(s *routing.Server) bool { return GatewayName(s) != name })
}

func gatewayNames(v *mesh.View, yield func(string) bool) {
	for _, s := range GatewayServers(v) {
		if !yield(GatewayName(s)) {
			return
		}
	}
}

// blackHole stands in a route configuration of a gateway that has no hosts.
func blackHole(port int) *routev3.VirtualHost {
	return envoy.VirtualHost(envoy.VirtualHostOptions{
		Name: envoy.BlackHoleVirtualHostName(uint32(port)), Domains: []string{"*"},
	})
}

// isBlackHole knows it by its name.
func isBlackHole(name string) bool { return strings.HasPrefix(name, blackHolePrefix) }

var blackHolePrefix = strings.TrimSuffix(envoy.BlackHoleVirtualHostName(0), "0")

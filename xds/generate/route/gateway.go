package route

import (
	"cmp"
	"slices"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/routing"
	"github.com/portolan-mesh/portolan/xds/names"
)

// GatewayServers returns the servers of a gateway that are served, the oldest first: those
// of plaintext HTTP, and those that pass bytes. Of the servers of one address and port the
// first decides. Those of HTTP share a listener, and the route configuration GatewayName; a
// server that passes bytes has its listener alone.
func GatewayServers(v *mesh.View) []*routing.Server { return served(v, v.Gateway()) }

// GatewayServersAt returns the servers of a port.
func GatewayServersAt(v *mesh.View, port int) []*routing.Server {
	return slices.DeleteFunc(served(v, v.GatewayAt(port)), func(s *routing.Server) bool { return s.Port() != port })
}

// HTTPServers returns those of HTTP among them.
func HTTPServers(v *mesh.View) []*routing.Server {
	return slices.DeleteFunc(GatewayServers(v), (*routing.Server).PassesBytes)
}

func served(v *mesh.View, gateway *routing.MergedGateway) []*routing.Server {
	if gateway == nil {
		return nil
	}
	var out []*routing.Server
	bytes := map[string]bool{} // whether the listener of a name passes bytes
	for _, s := range gateway.Servers {
		if !s.Protocol().IsHTTP() && !s.PassesBytes() || names.IsUnix(s.Spec.GetBind()) {
			continue
		}
		name := GatewayListenerName(v, s)
		if its, taken := bytes[name]; taken && (its || s.PassesBytes()) {
			continue
		}
		bytes[name] = s.PassesBytes()
		out = append(out, s)
	}
	return out
}

// GatewayBind is the address on which a server listens.
func GatewayBind(v *mesh.View, s *routing.Server) string {
	return cmp.Or(s.Spec.GetBind(), v.Shape().Wildcard())
}

// GatewayListenerName is the name of the listener of a server.
func GatewayListenerName(v *mesh.View, s *routing.Server) string {
	return names.Listener(GatewayBind(v, s), uint32(s.Port()))
}

// GatewayName names the routes of a server.
func GatewayName(s *routing.Server) string {
	return names.GatewayHTTPRouteConfig(uint32(s.Port()), s.Spec.GetBind())
}

// ServersOf are the servers that share a route configuration.
func ServersOf(v *mesh.View, name string) []*routing.Server {
	return slices.DeleteFunc(HTTPServers(v), func(s *routing.Server) bool { return GatewayName(s) != name })
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

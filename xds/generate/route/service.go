package route

import (
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/portolan-mesh/portolan/xds/mesh"
)

// RoutesTo are the routes of requests to a port of a service, as a proxy has them
// on an egress listener: those of the VirtualService that applies, or straight to
// it.
func RoutesTo(v *mesh.View, listener mesh.EgressListener, s *mesh.ServiceRow, port int) []*routev3.Route {
	b := sidecarBuilder{translator: translator{view: v, gateway: mesh.MeshGateway, port: port}, listener: listener}
	return b.routesTo(s)
}

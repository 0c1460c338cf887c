package route

import (
	"iter"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/names"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// maxDirectResponseBody is the largest body of a direct response, in bytes.
const maxDirectResponseBody = 1 << 20

// Generator makes route configurations.
type Generator struct{}

var (
	_ generate.Composer = Generator{}
	_ generate.Emptier  = Generator{}
)

// TypeURL implements generate.Generator.
func (Generator) TypeURL() string { return resource.RouteType }

// PartsURL implements generate.Composer.
func (Generator) PartsURL() string { return resource.VirtualHostType }

// Affected implements generate.Generator. The routes of a gateway appear and disappear
// with its servers, those of a sidecar with the ports of services.
func (Generator) Affected(v *mesh.View, d mesh.Delta) iter.Seq[string] {
	return func(yield func(string) bool) {
		if v.Shape().Type == discovery.Router {
			if d.Whole {
				gatewayNames(v, yield)
			}
			return
		}
		if d.Whole {
			for _, l := range v.Egress() {
				if l.Port != 0 && !yield(NameOf(l, l.Port)) {
					return
				}
			}
			for c := range WholeCarriers(v) {
				if !yield(c.Whole) {
					return
				}
			}
		}
		beside := Beside(v)
		for port := range ChangedPorts(v, d) {
			for _, l := range beside {
				if l.Port == port && !yield(l.Routes) {
					return
				}
			}
			if !yield(sidecarName(port)) {
				return
			}
		}
		for row := range ChangedHosts(v, d) {
			for port := range DetectedPorts(v, row) {
				if !yield(names.ServiceRouteConfig(string(row.Hostname), uint32(port))) {
					return
				}
			}
		}
	}
}

// Build implements generate.Generator: it makes the frame of a route
// configuration, see Compose.
func (Generator) Build(v *mesh.View, name string) (proto.Message, []resource.Need, error) {
	var rest *routev3.VirtualHost
	var own []*routev3.VirtualHost
	matchPort, http3 := false, 0
	if v.Shape().Type == discovery.Router {
		routes := v.GatewayRoutes(name)
		if routes == nil {
			return nil, nil, nil
		}
		rest = blackHole(routes.Port())
		if len(routes.Elsewhere) > 0 {
			own = append(own, misdirected(routes))
		}
		if TakesHTTP3(v, routes.Servers[0]) { // which has its routes alone
			http3 = routes.Port()
		}
	} else {
		c, ok := CarrierOf(v, name)
		if !ok || !c.exists(v) {
			return nil, nil, nil
		}
		if rest = restOf(v); c.Only != "" {
			rest = blackHole(c.Port)
		}
		matchPort = c.Whole != ""
	}
	needs := resource.TrafficTo(envoy.ClustersOf(rest))
	if v.RouteDelta() {
		needs = append(needs, resource.Need{TypeURL: resource.VirtualHostType, Name: name, Kind: resource.Within})
	}
	return envoy.RouteConfig(envoy.RouteConfigOptions{
		Name: name, VirtualHosts: append(own, rest), MaxDirectResponseBody: maxDirectResponseBody,
		MatchPort: matchPort, HostsByDelta: v.RouteDelta(), HTTP3Port: uint32(http3),
	}), needs, nil
}

// Empty implements generate.Emptier.
func (Generator) Empty(name string) (proto.Message, []resource.Need, error) {
	return envoy.RouteConfig(envoy.RouteConfigOptions{Name: name}), nil, nil
}

func sidecarName(port int) string { return names.SidecarRouteConfig(uint32(port)) }

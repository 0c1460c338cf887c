package route

import (
	"iter"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// TypeURL is the type of route configurations, PartsURL that of the virtual
// hosts which they are made of.
const (
	TypeURL  = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
	PartsURL = "type.googleapis.com/envoy.config.route.v3.VirtualHost"
)

// maxDirectResponseBody is the size of the longest body of a direct response.
const maxDirectResponseBody = 1 << 20

// Generator makes route configurations.
type Generator struct{}

var (
	_ generate.Composer = Generator{}
	_ generate.Emptier  = Generator{}
)

// TypeURL implements generate.Generator.
func (Generator) TypeURL() string { return TypeURL }

// PartsURL implements generate.Composer.
func (Generator) PartsURL() string { return PartsURL }

// Affected implements generate.Generator. The routes of a gateway come and go
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
				if l.Port != 0 && !yield(sidecarName(l.Port)) {
					return
				}
			}
		}
		for port := range ChangedPorts(v, d) {
			if !yield(sidecarName(port)) {
				return
			}
		}
		for row := range ChangedHosts(v, d) {
			for port := range DetectedPorts(v, row) {
				if !yield(envoy.ServiceRouteConfigName(string(row.Hostname), uint32(port))) {
					return
				}
			}
		}
	}
}

// Build implements generate.Generator: it makes the frame of a route
// configuration, see Compose.
func (Generator) Build(v *mesh.View, name string) (*resource.Resource, error) {
	var rest *routev3.VirtualHost
	if v.Shape().Type == discovery.Router {
		servers := ServersOf(v, name)
		if len(servers) == 0 {
			return nil, nil
		}
		rest = blackHole(servers[0].Port())
	} else {
		c, ok := CarrierOf(v, name)
		if !ok || !c.exists(v) {
			return nil, nil
		}
		if rest = restOf(v); c.Only != "" {
			rest = blackHole(c.Port)
		}
	}
	out, err := resource.New(name, envoy.RouteConfig(envoy.RouteConfigOptions{
		Name: name, VirtualHosts: []*routev3.VirtualHost{rest}, MaxDirectResponseBody: maxDirectResponseBody,
		HostsByDelta: v.RouteDelta(),
	}))
	if err != nil {
		return nil, err
	}
	out.Refs = envoy.ClustersOf(rest)
	return out, nil
}

// Empty implements generate.Emptier.
func (Generator) Empty(name string) (*resource.Resource, error) {
	return resource.New(name, envoy.RouteConfig(envoy.RouteConfigOptions{Name: name}))
}

func sidecarName(port int) string { return envoy.SidecarRouteConfigName(uint32(port)) }

package virtualhost

import (
	"iter"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/generate/route"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// Generator makes virtual hosts.
type Generator struct{}

var _ generate.Generator = Generator{}

// TypeURL implements generate.Generator.
func (Generator) TypeURL() string { return resource.VirtualHostType }

// Affected implements generate.Generator. A host appears and disappears with the services
// of its name, with the VirtualServices that name it, and with others that claim its
// domain.
func (Generator) Affected(v *mesh.View, d mesh.Delta) iter.Seq[string] {
	return func(yield func(string) bool) {
		if v.Shape().Type == discovery.Router {
			gatewayNames(v, d, yield)
		} else {
			sidecarNames(v, d, yield)
		}
	}
}

// Build implements generate.Generator.
func (Generator) Build(v *mesh.View, name string) (proto.Message, []resource.Need, error) {
	config, hostPort, ok := route.SplitHostName(name)
	if !ok {
		return nil, nil, nil
	}
	// The port follows the last colon, and is the port of the route configuration.
	colon := strings.LastIndex(hostPort, ":")
	if colon <= 0 {
		return nil, nil, nil
	}
	h := host.Name(hostPort[:colon])
	port, err := strconv.ParseUint(hostPort[colon+1:], 10, 16)
	if err != nil {
		return nil, nil, nil
	}
	var options *envoy.VirtualHostOptions
	if v.Shape().Type == discovery.Router {
		routes := v.GatewayRoutes(config)
		if routes == nil || route.HostName(config, string(h), routes.Port()) != name || !routes.Owns(h) {
			return nil, nil, nil
		}
		options = gatewayHost(v, routes.Servers, h)
	} else {
		c, ok := route.CarrierOf(v, config)
		if ok {
			c, ok = c.At(v, int(port))
		}
		if !ok || route.HostName(config, string(h), c.Port) != name {
			return nil, nil, nil
		}
		b := sidecarBuilder{translator{view: v, gateway: mesh.MeshGateway, port: c.Port}, c}
		options = b.host(h)
	}
	if options == nil {
		return nil, nil, nil
	}
	settings := v.ProxyConfig()
	options.Name, options.Uncounted = name, !settings.CountsAttempts()
	if settings.ForwardsHost() {
		for _, r := range options.Routes {
			if r.Forward != nil {
				r.Forward.ForwardHost = true
			}
		}
	}
	made := envoy.VirtualHost(*options)
	return made, resource.TrafficTo(envoy.ClustersOf(made)), nil
}

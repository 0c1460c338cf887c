package route

import (
	"iter"
	"strconv"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// TypeURL is the type of route configurations.
const TypeURL = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"

// maxDirectResponseBody is the size of the longest body of a direct response.
const maxDirectResponseBody = 1 << 20

// Generator makes route configurations.
type Generator struct{}

var (
	_ generate.Generator = Generator{}
	_ generate.Emptier   = Generator{}
)

// TypeURL implements generate.Generator.
func (Generator) TypeURL() string { return TypeURL }

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
		for port := range ChangedPorts(d) {
			if !yield(sidecarName(port)) {
				return
			}
		}
	}
}

// Build implements generate.Generator.
func (Generator) Build(v *mesh.View, name string) (*resource.Resource, error) {
	var hosts []*routev3.VirtualHost
	if v.Shape().Type == discovery.Router {
		servers := serversOf(v, name)
		if len(servers) == 0 {
			return nil, nil
		}
		hosts = gatewayHosts(v, servers)
	} else {
		port, err := strconv.ParseUint(name, 10, 16)
		if err != nil || sidecarName(int(port)) != name {
			return nil, nil
		}
		listener, ok := ListenerOf(v, int(port))
		if !ok || !Carries(v, listener, int(port)) {
			return nil, nil
		}
		hosts = sidecarHosts(v, listener, int(port))
	}
	return resource.New(name, envoy.RouteConfig(envoy.RouteConfigOptions{
		Name: name, VirtualHosts: hosts, MaxDirectResponseBody: maxDirectResponseBody,
	}))
}

// Empty implements generate.Emptier.
func (Generator) Empty(name string) (*resource.Resource, error) {
	return resource.New(name, envoy.RouteConfig(envoy.RouteConfigOptions{Name: name}))
}

func sidecarName(port int) string { return envoy.SidecarRouteConfigName(uint32(port)) }

// ChangedPorts are the ports of the hosts that may have come into or gone out of
// a sidecar's sight, with what they are now and with what they were, each once.
func ChangedPorts(d mesh.Delta) iter.Seq[int] {
	return func(yield func(int) bool) {
		seen := map[int]bool{}
		once := func(port int) bool {
			if seen[port] {
				return true
			}
			seen[port] = true
			return yield(port)
		}
		for c := range d.Hosts() {
			if !hostPorts(c.Old, once) || !hostPorts(c.New, once) {
				return
			}
		}
		if d.Whole {
			return
		}
		for c := range d.Destinations() {
			for row := range d.HostsMatching(c.Key) {
				if !hostPorts(row, once) {
					return
				}
			}
		}
	}
}

func hostPorts(row *mesh.HostRow, yield func(int) bool) bool {
	if row == nil {
		return true
	}
	for _, s := range row.Services {
		for _, p := range s.Ports() {
			if !yield(p.Number) {
				return false
			}
		}
	}
	return true
}

package listener

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/generate/route"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/routing"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// routedNames names the listeners of the servers that pass bytes and whose tcp routes
// changed: there is one only where a route is for the server.
func routedNames(v *mesh.View, d mesh.Delta, yield func(string) bool) {
	changed := map[string]bool{}
	for c := range d.GatewayStreams() {
		changed[c.Key] = true
	}
	if len(changed) == 0 {
		return
	}
	for _, s := range route.GatewayServers(v) {
		gateway := s.Gateway.Name()
		if s.PassesBytes() && (changed[routing.GatewayStreamKey(gateway, s.Port())] || changed[routing.GatewayStreamKey(gateway, 0)]) &&
			!yield(route.GatewayListenerName(v, s)) {
			return
		}
	}
}

// passing makes the listener of a server that passes bytes, nil where no tcp route is for
// it: one route has all its connections.
func passing(v *mesh.View, name string, s *routing.Server) (proto.Message, []resource.Need, error) {
	vs, i := v.GatewayTCPRoute(s)
	if vs == nil {
		return nil, nil, nil
	}
	c := chains{view: v, name: name, port: s.Port()}
	chain := c.chain(nil, stream{vs: vs, route: vs.Spec.GetTcp()[i].GetRoute()}, envoy.FilterChainOptions{})
	return gatewayListener(v, name, s, chain, nil, c.refs)
}

// GatewayFieldOf finds which tcp route of a VirtualService the filter chain of a listener
// of a gateway comes from; false for none.
func GatewayFieldOf(v *mesh.View, listener string, vs *routing.VirtualService) (string, bool) {
	for _, s := range route.GatewayServers(v) {
		if !s.PassesBytes() || route.GatewayListenerName(v, s) != listener {
			continue
		}
		if of, i := v.GatewayTCPRoute(s); of == vs {
			return fmt.Sprintf("spec.tcp[%d]", i), true
		}
	}
	return "", false
}

package listener

import (
	"fmt"

	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/generate/route"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/routing"
)

// routedNames names the listeners of the servers that pass bytes and whose tcp routes
// changed: there is one only where a route is for the server.
func routedNames(v *mesh.View, d mesh.Delta, yield func(string) bool) bool {
	changed := map[string]bool{}
	for c := range d.GatewayStreams() {
		changed[c.Key] = true
	}
	if len(changed) == 0 {
		return true
	}
	for _, l := range route.GatewayListeners(v) {
		for _, s := range l.Servers {
			gateway := s.Gateway.Name()
			if s.PassesBytes() && (changed[routing.GatewayStreamKey(gateway, s.Port())] || changed[routing.GatewayStreamKey(gateway, 0)]) &&
				!yield(route.GatewayListenerName(l)) {
				return false
			}
		}
	}
	return true
}

// plainBytes adds the chain of a server that passes bytes, unless no tcp route is for it: one
// route has all its connections.
func (e *edge) plainBytes(s *routing.Server) {
	vs, i := e.view.GatewayTCPRoute(s)
	if vs == nil {
		return
	}
	e.list = append(e.list, e.chain(nil, stream{vs: vs, route: vs.Spec.GetTcp()[i].GetRoute()}, envoy.FilterChainOptions{}))
}

// GatewayFieldOf finds which tcp route of a VirtualService the filter chain of a listener
// of a gateway comes from; false for none.
func GatewayFieldOf(v *mesh.View, listener string, vs *routing.VirtualService) (string, bool) {
	for _, l := range route.GatewayListeners(v) {
		if route.GatewayListenerName(l) != listener {
			continue
		}
		for _, s := range l.Servers {
			if !s.PassesBytes() {
				continue
			}
			if of, i := v.GatewayTCPRoute(s); of == vs {
				return fmt.Sprintf("spec.tcp[%d]", i), true
			}
		}
	}
	return "", false
}

package listener

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/generate/filter"
	"github.com/portolan-mesh/portolan/xds/generate/route"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/routing"
	"github.com/portolan-mesh/portolan/xds/names"
	"github.com/portolan-mesh/portolan/xds/resource"
)

func gatewayNames(v *mesh.View, yield func(string) bool) {
	for _, s := range route.GatewayServers(v) {
		if !yield(route.GatewayListenerName(v, s)) {
			return
		}
	}
}

// gateway makes the listener that the servers of an address and port share. The
// first of them tells the name of their routes.
func gateway(v *mesh.View, name string) (proto.Message, []resource.Need, error) {
	at, ok := portOf(name)
	if !ok {
		return nil, nil, nil
	}
	for _, s := range route.GatewayServersAt(v, at) {
		if route.GatewayListenerName(v, s) != name {
			continue
		}
		if s.PassesBytes() {
			return passing(v, name, s)
		}
		routes := route.GatewayName(s)
		return gatewayListener(v, name, s, envoy.FilterChain(envoy.FilterChainOptions{
			Filters: []*listenerv3.Filter{filter.Manager(v, filter.Gateway, filter.Options{
				StatPrefix: names.HTTPStatPrefix(names.Outbound, name), RouteConfigName: routes,
				DynamicDNS: v.PortDynamic(mesh.AnyPort),
			})},
		}), []string{routes}, nil)
	}
	return nil, nil, nil
}

// gatewayListener makes the listener of a server with its one filter chain.
func gatewayListener(v *mesh.View, name string, s *routing.Server, chain *listenerv3.FilterChain, routes, clusters []string) (proto.Message, []resource.Need, error) {
	return made(envoy.ListenerOptions{
		Name: name, Host: route.GatewayBind(v, s), Port: uint32(s.Port()),
		Direction:     corev3.TrafficDirection_OUTBOUND,
		ProxyProtocol: v.Mesh(mesh.DefaultProxyConfig).ProxyProtocol(),
		AccessLogs:    filter.ListenerAccessLogs(v),
		FilterChains:  []*listenerv3.FilterChain{chain},
	}, routes, clusters)
}

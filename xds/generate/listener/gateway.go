package listener

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/generate/filter"
	"github.com/portolan-mesh/portolan/xds/generate/policy"
	"github.com/portolan-mesh/portolan/xds/generate/route"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/routing"
	"github.com/portolan-mesh/portolan/xds/mesh/service"
	"github.com/portolan-mesh/portolan/xds/names"
	"github.com/portolan-mesh/portolan/xds/resource"
)

func gatewayNames(v *mesh.View, yield func(string) bool) {
	for _, l := range route.GatewayListeners(v) {
		if !listenerNames(v, l, yield) {
			return
		}
	}
}

// listenerNames yields the name of a gateway's listener, and of its HTTP/3 listener.
func listenerNames(v *mesh.View, l *routing.Listener, yield func(string) bool) bool {
	if !yield(l.Name()) {
		return false
	}
	quic, ok := route.QUICListenerName(v, l)
	return !ok || yield(quic)
}

// gateway makes the listener that the servers of an address and port share, nil if none
// of them has a filter chain.
func gateway(v *mesh.View, name string) (proto.Message, []resource.Need, error) {
	if l := v.GatewayListener(name); l != nil {
		return newEdge(v, name, l).build()
	}
	beside, ok := names.BesideQUIC(name)
	if !ok {
		return nil, nil, nil
	}
	if l := v.GatewayListener(beside); l != nil {
		if quic, takes := route.QUICListenerName(v, l); takes && quic == name {
			return newEdge(v, name, l).buildQUIC()
		}
	}
	return nil, nil, nil
}

// edge collects the filter chains of a gateway's listener.
type edge struct {
	chains
	of *routing.Listener
	// quic: this is the HTTP/3 listener.
	quic bool
	// needs are the needs of transport sockets. The embedded chains have those of routes
	// and clusters.
	needs []resource.Need
}

func newEdge(v *mesh.View, name string, l *routing.Listener) *edge {
	return &edge{chains: chains{view: v, kind: filter.Gateway, name: name, port: l.Port}, of: l}
}

// build makes the listener from the chains of all servers. For a new kind of server, add
// a case here and a method that adds its chains.
func (e *edge) build() (proto.Message, []resource.Need, error) {
	plain := false
	for _, s := range e.of.Servers {
		switch s.Kind() {
		case routing.HTTP:
			if !plain { // the first tells the name of the routes
				e.plainHTTP(s)
			}
			plain = true
		case routing.HTTPS:
			e.https(s)
		case routing.Bytes:
			e.plainBytes(s)
		case routing.TLSBytes:
			e.terminatedBytes(s)
		case routing.Passthrough:
			e.passTLS(s)
		case routing.AutoPassthrough:
			e.passServices(s)
		}
	}
	if len(e.list) == 0 {
		return nil, nil, nil
	}
	o := envoy.ListenerOptions{ProxyProtocol: e.view.ProxyConfig().ProxyProtocol()}
	if e.of.IsTLS() {
		o.TLSInspector = &envoy.Inspection{}
	}
	return e.listener(o)
}

// buildQUIC makes the HTTP/3 listener from the servers that support it.
func (e *edge) buildQUIC() (proto.Message, []resource.Need, error) {
	e.quic = true
	for _, s := range e.of.Servers {
		if route.TakesHTTP3(e.view, s) {
			e.https(s)
		}
	}
	if len(e.list) == 0 {
		return nil, nil, nil
	}
	return e.listener(envoy.ListenerOptions{QUIC: true})
}

// listener makes a listener from the chains.
func (e *edge) listener(o envoy.ListenerOptions) (proto.Message, []resource.Need, error) {
	o.Name, o.Host, o.Port = e.name, e.of.Bind, uint32(e.of.Port)
	o.Direction, o.AccessLogs, o.FilterChains = corev3.TrafficDirection_OUTBOUND, filter.ListenerAccessLogs(e.view, e.kind), e.list
	message, needs, err := build(e.view, e.kind, o, e.children, e.refs)
	needs = append(policy.Needs(len(e.children) > 0, len(e.list) > len(e.children)), needs...)
	return message, append(e.needs, needs...), err
}

// plainHTTP adds the chain that the plaintext HTTP servers share.
func (e *edge) plainHTTP(s *routing.Server) {
	e.routes(s, envoy.FilterChainOptions{TransportProtocol: e.plaintext()}, names.HTTPStatPrefix(names.Outbound, e.name))
}

// plaintext is the transport protocol that plaintext chains match. It is empty, any,
// unless the listener also has TLS servers.
func (e *edge) plaintext() string {
	if e.of.IsTLS() {
		return envoy.TransportRaw
	}
	return ""
}

// routes adds a chain with the route configuration of a server.
func (e *edge) routes(s *routing.Server, o envoy.FilterChainOptions, statPrefix string) {
	routes := e.of.RoutesOf(s)
	o.Filters = filter.Network(e.view, e.kind, filter.NetworkOptions{Port: e.port, QUIC: e.quic}, filter.Manager(e.view, filter.Gateway, filter.Options{
		Port:       e.port,
		StatPrefix: statPrefix, RouteConfigName: routes, HTTP3: e.quic, DynamicDNS: e.view.PortDynamic(service.AnyPort),
	}))
	e.list = append(e.list, envoy.FilterChain(o))
	e.children = append(e.children, routes)
}

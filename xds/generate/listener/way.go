package listener

import (
	"slices"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/generate/filter"
	"github.com/portolan-mesh/portolan/xds/generate/transport"
	"github.com/portolan-mesh/portolan/xds/generate/workload"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/peer"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// A way leads into a port of the workload: the connections that it is for, and the socket that
// takes them. Each has a filter chain.
type way struct {
	match
	socket transport.Socket
	// http: the connections carry requests, and not only bytes.
	http bool
}

// match is a part of the match of a filter chain.
type match struct {
	transport    string   // empty for any
	applications []string // none for any
}

var (
	anything  = match{}
	raw       = match{transport: envoy.TransportRaw}
	rawHTTP   = match{envoy.TransportRaw, envoy.PlaintextHTTP()}
	encrypted = match{transport: envoy.TransportTLS}
	ofMesh    = match{envoy.TransportTLS, envoy.MeshProtocols()}
	meshHTTP  = match{envoy.TransportTLS, envoy.MeshHTTP()}
	meshBytes = match{envoy.TransportTLS, envoy.MeshBytes()}
)

// content is what connections to a port carry.
type content int

const (
	carriesHTTP content = iota
	carriesBytes
	carriesEither // the proxy looks
)

// contentOf returns what connections to a port carry. Only the listener to which connections
// are redirected looks.
func contentOf(v *mesh.View, p workload.Port) content {
	switch {
	case p.Protocol.IsHTTP():
		return carriesHTTP
	case p.Protocol == discovery.Unsupported && p.Captured(v.Shape()):
		return carriesEither
	}
	return carriesBytes
}

// waysInto returns the ways into a port. None means that the TLS, which the proxy should end
// there, lacks something: then no connection may get in.
//
// An ingress listener with tls of its own takes that TLS beside the mesh's. Where mutual TLS
// of the mesh is demanded, it takes nothing else. (Istio: getFilterChainsByServicePort.)
func waysInto(v *mesh.View, p workload.Port) []way {
	c, mode := contentOf(v, p), workload.Mode(v, p.Number)
	if p.TLS() == nil || mode == peer.Strict {
		return waysOf(v, mode, c)
	}
	own, ok := transport.Server(v, p.TLS(), transport.ServerOptions{})
	if !ok {
		return nil
	}
	if mode == peer.Disable {
		return []way{{anything, own, c == carriesHTTP}}
	}
	mutual, ok := transport.Mesh(v)
	if !ok {
		return nil
	}
	return []way{{ofMesh, mutual, c == carriesHTTP}, {encrypted, own, c == carriesHTTP}}
}

// waysOf returns the ways into a port without TLS of its own. The ways for sidecars of the mesh
// are equal in STRICT and PERMISSIVE: a proxy ends the connections of a filter chain that
// changes, and those that are encrypted go on.
func waysOf(v *mesh.View, mode peer.Mode, c content) []way {
	var plain transport.Socket
	if mode == peer.Disable {
		if c == carriesEither {
			return []way{{rawHTTP, plain, true}, {raw, plain, false}}
		}
		return []way{{anything, plain, c == carriesHTTP}}
	}
	mutual, ok := transport.Mesh(v)
	switch {
	case !ok:
		return nil
	case mode == peer.Strict && c == carriesEither:
		return []way{{meshHTTP, mutual, true}, {meshBytes, mutual, false}, {encrypted, mutual, false}}
	case mode == peer.Strict && c == carriesBytes:
		return []way{{ofMesh, mutual, false}, {encrypted, mutual, false}}
	case mode == peer.Strict:
		return []way{{encrypted, mutual, true}}
	case c == carriesEither:
		return []way{{meshHTTP, mutual, true}, {rawHTTP, plain, true}, {meshBytes, mutual, false}, {raw, plain, false}, {encrypted, plain, false}}
	case c == carriesHTTP:
		return []way{{encrypted, mutual, true}, {raw, plain, true}}
	}
	return []way{{ofMesh, mutual, false}, {encrypted, plain, false}, {raw, plain, false}}
}

// inspectsTLS says whether the proxy must look whether a client begins TLS, to find the way.
func inspectsTLS(ways []way) bool {
	return slices.ContainsFunc(ways, func(w way) bool { return w.transport == envoy.TransportTLS })
}

// chain makes the filter chain of a way into a port, 0 for any.
func (w way) chain(v *mesh.View, port int, o envoy.FilterChainOptions, last *listenerv3.Filter) *listenerv3.FilterChain {
	o.TransportProtocol, o.ApplicationProtocols, o.Transport = w.transport, w.applications, w.socket.Transport
	o.Filters = filter.Network(v, filter.SidecarInbound, filter.NetworkOptions{Port: port}, last)
	return envoy.FilterChain(o)
}

// carry says whether some of the ways carry requests, and whether some carry bytes.
func carry(ways []way) (http, bytes bool) {
	for _, w := range ways {
		http, bytes = http || w.http, bytes || !w.http
	}
	return http, bytes
}

// needsOf returns what the sockets of ways need.
func needsOf(ways []way) []resource.Need {
	var out []resource.Need
	for _, w := range ways {
		for _, n := range w.socket.Needs {
			if !slices.Contains(out, n) {
				out = append(out, n)
			}
		}
	}
	return out
}

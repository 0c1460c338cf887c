package listener

import (
	"slices"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"

	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/generate/filter"
	"github.com/portolan-mesh/portolan/xds/generate/transport"
	"github.com/portolan-mesh/portolan/xds/generate/workload"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// A way leads into a port of the workload: the connections that it is for, and the socket that
// takes them.
type way struct {
	// any matches all its connections. Of a port whose protocol is not declared, http matches
	// those that speak HTTP, and bytes the others.
	any, http, bytes match
	socket           transport.Socket
}

// match is a part of the match of a filter chain.
type match struct {
	transport    string   // empty for any
	applications []string // none for any
}

// waysInto returns the ways into a port. None means that the TLS, which the proxy should end
// there, lacks something: then no connection may get in.
func waysInto(v *mesh.View, p workload.Port) []way {
	if p.TLS() == nil {
		return []way{plaintext()}
	}
	socket, ok := transport.Server(v, p.TLS(), transport.ServerOptions{Bytes: !p.Protocol.IsHTTP()})
	if !ok {
		return nil
	}
	return []way{{socket: socket}}
}

// plaintext is the way in for connections that nobody has encrypted.
func plaintext() way {
	return way{http: match{envoy.TransportRaw, envoy.PlaintextHTTP()}, bytes: match{transport: envoy.TransportRaw}}
}

// chain makes the filter chain of a way for those of its connections that match.
func (w way) chain(v *mesh.View, o envoy.FilterChainOptions, of match, last *listenerv3.Filter) *listenerv3.FilterChain {
	o.TransportProtocol, o.ApplicationProtocols, o.Transport = of.transport, of.applications, w.socket.Transport
	o.Filters = filter.Network(v, filter.SidecarInbound, filter.NetworkOptions{}, last)
	return envoy.FilterChain(o)
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

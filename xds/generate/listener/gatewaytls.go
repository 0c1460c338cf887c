package listener

import (
	"cmp"
	"slices"

	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/generate/route"
	"github.com/portolan-mesh/portolan/xds/generate/transport"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/routing"
	"github.com/portolan-mesh/portolan/xds/names"
)

// certifiedNames yields the listeners of servers that terminate TLS with a changed
// secret: without its secret a server has no chain.
func certifiedNames(v *mesh.View, d mesh.Delta, yield func(string) bool) {
	changed := v.ChangedSecrets(d)
	if len(changed) == 0 {
		return
	}
	for _, l := range route.GatewayListeners(v) {
		for _, s := range l.Servers {
			if s.Kind().TerminatesTLS() && slices.ContainsFunc(changed, s.AsksForSecret) && !listenerNames(v, l, yield) {
				return
			}
		}
	}
}

// https adds the chain of a server that terminates TLS and routes requests.
func (e *edge) https(s *routing.Server) {
	if o, ok := e.terminateTLS(s, transport.ServerOptions{QUIC: e.quic}); ok {
		e.routes(s, o, cmp.Or(s.Spec.GetName(), names.HTTPStatPrefix(names.Outbound, e.name)))
	}
}

// terminateTLS returns the chain of a server that terminates TLS, by its SNI names. It returns
// false if the certificate is missing: then there is no chain, and the listener closes
// connections with these names.
func (e *edge) terminateTLS(s *routing.Server, o transport.ServerOptions) (envoy.FilterChainOptions, bool) {
	socket, ok := transport.Server(e.view, s.Spec.GetTls(), o)
	if !ok {
		return envoy.FilterChainOptions{}, false
	}
	for _, need := range socket.Needs {
		if !slices.Contains(e.needs, need) {
			e.needs = append(e.needs, need)
		}
	}
	return envoy.FilterChainOptions{ServerNames: serverNames(s), Transport: socket.Transport}, true
}

// serverNames returns a server's hosts as filter chains match them; none if any name will
// do.
func serverNames(s *routing.Server) []string {
	if slices.Contains(s.Names, "*") {
		return nil
	}
	return s.Names
}

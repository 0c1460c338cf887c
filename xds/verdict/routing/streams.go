package routing

import (
	"fmt"
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/routing"
	"github.com/portolan-mesh/portolan/xds/verdict"
)

// streams judges the tcp and tls routes of a VirtualService.
func (j *judge) streams(vs *routing.VirtualService, written *networking.VirtualService) {
	for i, r := range vs.Spec.GetTcp() {
		j.streamDestinations(vs, verdict.At("spec.tcp", i), r.GetRoute(), written.GetTcp()[i].GetRoute())
		for k, d := range r.GetRoute() {
			j.unnamed(vs, d.GetDestination(), verdict.At(verdict.At("spec.tcp", i)+".route", k)+".destination")
		}
	}
	for i, r := range vs.Spec.GetTls() {
		j.streamDestinations(vs, verdict.At("spec.tls", i), r.GetRoute(), written.GetTls()[i].GetRoute())
	}
	if !slices.Contains(vs.Gateways, mesh.MeshGateway) {
		return
	}
	j.routePorts(vs)
	j.streamsBefore(vs)
}

func (j *judge) streamDestinations(vs *routing.VirtualService, field string, route, written []*networking.RouteDestination) {
	for k, d := range route {
		j.destination(vs, d.GetDestination(), written[k].GetDestination().GetHost(), verdict.At(field+".route", k)+".destination", closed)
	}
}

// routePorts warns of http, tcp or tls routes if no service of the hosts has a port for them.
// Where a port declares no protocol, sidecars may detect HTTP. If there is no service,
// sidecarHosts reports it.
func (j *judge) routePorts(vs *routing.VirtualService) {
	http, tcp, tls, some := false, false, false, false
	for _, h := range vs.Hosts {
		looked := 0
		for s := range j.Services(h) {
			if some, looked = true, looked+1; looked > verdict.MaxLooked {
				return
			}
			for _, p := range s.Ports() {
				http = http || p.Protocol.IsHTTP() || p.Protocol == discovery.Unsupported
				tls = tls || p.Protocol.IsTLS()
				tcp = tcp || p.Protocol.IsServed() && !p.Protocol.IsHTTP() && !p.Protocol.IsTLS()
			}
		}
	}
	if !some {
		return
	}
	if len(vs.Spec.GetHttp()) > 0 && !http {
		j.Add(verdict.Verdict{
			Code: verdict.StreamUnused, Field: "spec.http", Message: "no service of the hosts has a port for HTTP: the routes have no effect on sidecars",
			Remedy: "use tcp or tls for other ports, or declare the protocol of the port as HTTP, HTTP2 or GRPC",
		})
	}
	if len(vs.Spec.GetTcp()) > 0 && !tcp {
		j.Add(verdict.Verdict{
			Code: verdict.StreamUnused, Field: "spec.tcp", Message: "no service of the hosts has a port for TCP, which is for neither HTTP nor TLS: the routes have no effect",
			Remedy: "use tls for ports of TLS and http for those of HTTP, or mend the protocol of the port",
		})
	}
	if len(vs.Spec.GetTls()) > 0 && !tls {
		j.Add(verdict.Verdict{
			Code: verdict.StreamUnused, Field: "spec.tls", Message: fmt.Sprintf("no service of the hosts has a port for %s or %s: the routes have no effect", discovery.TLS, discovery.HTTPS),
			Remedy: "use tcp or http for other ports, or mend the protocol of the port",
		})
	}
}

// streamsBefore warns of tcp and tls routes that come after those of another VirtualService, or
// after others of this one. It reports at most one service for each host.
func (j *judge) streamsBefore(vs *routing.VirtualService) {
	view := j.View(proxyNamespace(vs, mesh.MeshGateway))
	told := map[string]bool{}
	j.sniTwice(vs, vs, told)
	for i, h := range vs.Hosts {
		if slices.Contains(vs.Refused, h) {
			continue
		}
		looked, shadowed := 0, false
		for s := range j.Services(h) {
			if looked++; looked > verdict.MaxLooked {
				break
			}
			for _, other := range view.Streams(view.Egress()[0], s.Hostname) {
				if other == vs {
					break
				}
				if len(vs.Spec.GetTcp()) > 0 && takesAllStreams(other) && !shadowed {
					shadowed = true
					j.Add(verdict.Verdict{
						Code: verdict.StreamShadowed, Field: verdict.At("spec.hosts", i), Other: other.Key(),
						Message: fmt.Sprintf("%s takes all connections to %s, and comes first: its tcp routes are used alone", other.Key(), s.Hostname),
						Remedy:  "put the routes of both into one VirtualService",
					})
				}
				j.sniTwice(vs, other, told)
			}
		}
	}
}

// takesAllStreams reports whether a tcp route of a VirtualService takes every connection of
// every sidecar.
func takesAllStreams(vs *routing.VirtualService) bool {
	return slices.ContainsFunc(vs.Spec.GetTcp(), func(r *networking.TCPRoute) bool {
		return len(r.GetMatch()) == 0 || slices.ContainsFunc(r.GetMatch(), func(m *networking.L4MatchAttributes) bool {
			return len(m.GetDestinationSubnets()) == 0 && everySidecar(m) && m.GetPort() == 0
		})
	})
}

// everySidecar reports whether a match is for all sidecars.
func everySidecar(m interface {
	GetGateways() []string
	GetSourceLabels() map[string]string
	GetSourceNamespace() string
}) bool {
	return len(m.GetSourceLabels()) == 0 && m.GetSourceNamespace() == "" && (len(m.GetGateways()) == 0 || slices.Contains(m.GetGateways(), mesh.MeshGateway))
}

// sniTwice warns of names of the tls routes that an earlier match has for the same addresses
// and for all sidecars. That match is in other, which comes first or is vs itself. It reports a
// name once.
func (j *judge) sniTwice(vs, other *routing.VirtualService, told map[string]bool) {
	for i, r := range vs.Spec.GetTls() {
		for k, m := range r.GetMatch() {
			for n, name := range m.GetSniHosts() {
				field := verdict.At(verdict.At(verdict.At("spec.tls", i)+".match", k)+".sniHosts", n)
				before, found := sniBefore(other, m, name, func(block, match int) bool {
					return vs != other || block < i || block == i && match < k
				})
				if !found || told[field] {
					continue
				}
				told[field] = true
				v := verdict.Verdict{
					Code: verdict.SNITaken, Field: field, Message: fmt.Sprintf("%q has a route already, %s, which comes first: this one is not used for the name", name, before),
					Remedy: "name it once, or tell the routes apart by destinationSubnets",
				}
				if vs != other {
					v.Other = other.Key()
					v.Message = fmt.Sprintf("%q has a route already, %s of %s, which comes first: this one is not used for the name", name, before, v.Other)
				}
				j.Add(v)
			}
		}
	}
}

// sniBefore returns the first match of a VirtualService that takes a name from m, among those
// for which counts is true.
func sniBefore(vs *routing.VirtualService, m *networking.TLSMatchAttributes, name string, counts func(block, match int) bool) (field string, found bool) {
	for i, r := range vs.Spec.GetTls() {
		for k, o := range r.GetMatch() {
			if counts(i, k) && everySidecar(o) && (o.GetPort() == 0 || o.GetPort() == m.GetPort()) &&
				slices.Contains(o.GetSniHosts(), name) && slices.Equal(o.GetDestinationSubnets(), m.GetDestinationSubnets()) {
				return verdict.At(verdict.At("spec.tls", i)+".match", k), true
			}
		}
	}
	return "", false
}

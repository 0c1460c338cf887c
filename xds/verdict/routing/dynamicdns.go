package routing

import (
	"fmt"
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/routing"
	"github.com/portolan-mesh/portolan/xds/verdict"
)

// dynamicDestination returns the service of a destination as one of the gateways sees it, if it
// has resolution DYNAMIC_DNS, else nil.
func (j *judge) dynamicDestination(vs *routing.VirtualService, gateway string, d *networking.Destination) *mesh.ServiceRow {
	s := j.ServiceOf(host.Name(d.GetHost()), proxyNamespace(vs, gateway))
	if s == nil || !verdict.IsDynamic(s) {
		return nil
	}
	return s
}

// unnamed warns of a tcp route to a dynamic service: its connections name no host to look up.
func (j *judge) unnamed(vs *routing.VirtualService, d *networking.Destination, field string) {
	for _, gateway := range vs.Gateways {
		if s := j.dynamicDestination(vs, gateway, d); s != nil {
			j.Add(verdict.Verdict{
				Code: verdict.HostUnnamed, Field: field + ".host",
				Message: fmt.Sprintf("%s has resolution DYNAMIC_DNS, and these connections name no host that a proxy could look up: %s", s.Hostname, closed),
				Remedy:  "use a tls route, or a service with endpoints",
			})
			return
		}
	}
}

// unresolved warns of an HTTP route to a dynamic service if its requests come in on a port that
// no dynamic service has. Proxies look up no hosts there.
func (j *judge) unresolved(vs *routing.VirtualService, http *networking.HTTPRoute, d *networking.Destination, field string) {
	if !slices.Contains(vs.Gateways, mesh.MeshGateway) {
		return
	}
	s := j.dynamicDestination(vs, mesh.MeshGateway, d)
	if s == nil {
		return
	}
	view := j.View(proxyNamespace(vs, mesh.MeshGateway))
	for _, port := range j.portsFor(vs, http) {
		if !view.PortDynamic(port) {
			j.Add(verdict.Verdict{
				Code: verdict.HostUnresolved, Field: field,
				Message: fmt.Sprintf("%s has resolution DYNAMIC_DNS and not port %d, on which requests come in: proxies do not look hosts up there, and answer with 503", s.Hostname, port),
				Remedy:  fmt.Sprintf("add port %d to the ports of the service too", port),
			})
			return
		}
	}
}

// portsFor returns the HTTP ports of a VirtualService's hosts on which one of its routes
// applies to sidecars, in order.
func (j *judge) portsFor(vs *routing.VirtualService, http *networking.HTTPRoute) []int {
	var out []int
	for _, h := range vs.Hosts {
		looked := 0
		for s := range j.Services(h) {
			if looked++; looked > verdict.MaxLooked {
				break
			}
			for _, p := range s.Ports() {
				if p.Protocol.IsHTTP() && appliesOn(http, p.Number) {
					out = append(out, p.Number)
				}
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// appliesOn reports whether a route is for requests of sidecars on a port.
func appliesOn(http *networking.HTTPRoute, port int) bool {
	return len(http.GetMatch()) == 0 || slices.ContainsFunc(http.GetMatch(), func(m *networking.HTTPMatchRequest) bool {
		return (m.GetPort() == 0 || int(m.GetPort()) == port) && (len(m.GetGateways()) == 0 || slices.Contains(m.GetGateways(), mesh.MeshGateway))
	})
}

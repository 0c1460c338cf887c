package verdict

import (
	"fmt"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/routing"
)

// isDynamic says whether proxies resolve the host that clients of a service name.
func isDynamic(s *mesh.ServiceRow) bool { return s.Service().Resolution == discovery.DynamicDNS }

// dynamicDestination is the service of a route of one of its gateways, if it is dynamic;
// else nil.
func (j *judge) dynamicDestination(vs *routing.VirtualService, gateway string, d *networking.Destination) *mesh.ServiceRow {
	s := j.serviceOf(host.Name(d.GetHost()), viewpoints(vs, gateway))
	if s == nil || !isDynamic(s) {
		return nil
	}
	return s
}

// unnamed judges whether connections of a tcp route go to a dynamic service: they name no
// host.
func (j *judge) unnamed(vs *routing.VirtualService, d *networking.Destination, field string) {
	for _, gateway := range vs.Gateways {
		if s := j.dynamicDestination(vs, gateway, d); s != nil {
			j.add(Verdict{
				Code: HostUnnamed, Field: field + ".host",
				Message: fmt.Sprintf("%s has resolution DYNAMIC_DNS, and these connections name no host that a proxy could look up: %s", s.Hostname, closed),
				Remedy:  "use a tls route, or a service with endpoints",
			})
			return
		}
	}
}

// unresolved judges whether requests of an HTTP route that leads to a dynamic service come
// in on a port on which proxies do not look hosts up: that of no such service.
func (j *judge) unresolved(vs *routing.VirtualService, http *networking.HTTPRoute, d *networking.Destination, field string) {
	if !slices.Contains(vs.Gateways, mesh.MeshGateway) {
		return
	}
	s := j.dynamicDestination(vs, mesh.MeshGateway, d)
	if s == nil {
		return
	}
	view := j.view(viewpoints(vs, mesh.MeshGateway))
	for _, port := range j.portsFor(vs, http) {
		if !view.PortDynamic(port) {
			j.add(Verdict{
				Code: HostUnresolved, Field: field,
				Message: fmt.Sprintf("%s has resolution DYNAMIC_DNS and not port %d, on which requests come in: proxies do not look hosts up there, and answer with 503", s.Hostname, port),
				Remedy:  fmt.Sprintf("add port %d to the ports of the service too", port),
			})
			return
		}
	}
}

// portsFor are the ports of HTTP of the hosts of a VirtualService on which a route of it
// applies to sidecars, in order.
func (j *judge) portsFor(vs *routing.VirtualService, http *networking.HTTPRoute) []int {
	var out []int
	for _, h := range vs.Hosts {
		looked := 0
		for s := range j.services(h) {
			if looked++; looked > maxLooked {
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

// appliesOn says whether a route is for requests of sidecars on a port.
func appliesOn(http *networking.HTTPRoute, port int) bool {
	return len(http.GetMatch()) == 0 || slices.ContainsFunc(http.GetMatch(), func(m *networking.HTTPMatchRequest) bool {
		return (m.GetPort() == 0 || int(m.GetPort()) == port) && (len(m.GetGateways()) == 0 || slices.Contains(m.GetGateways(), mesh.MeshGateway))
	})
}

// dynamicRule judges what of a rule has no effect on services each of whose endpoints is a
// host that clients name: there is nothing to choose from.
func (j *judge) dynamicRule(spec *networking.DestinationRule, services []*mesh.ServiceRow) {
	if len(services) == 0 || slices.ContainsFunc(services, func(s *mesh.ServiceRow) bool { return !isDynamic(s) }) {
		return
	}
	pointless := func(field, why, remedy string) {
		j.add(Verdict{Code: Unexpected, Field: field, Message: "has no effect with resolution DYNAMIC_DNS: " + why, Remedy: remedy})
	}
	blocks := func(p balanced, path string) {
		if p.GetLoadBalancer() != nil {
			pointless(path+".loadBalancer", "the host that a client names is the one endpoint", "leave it out")
		}
		if p.GetOutlierDetection().GetMinHealthPercent() > 0 {
			pointless(path+".outlierDetection.minHealthPercent", "requests to a host that is ejected are answered with 503, however many hosts are", "leave it out")
		}
	}
	for path, policy := range policiesOf(spec) {
		blocks(policy, path)
		for i, port := range policy.GetPortLevelSettings() {
			blocks(port, at(path+".portLevelSettings", i))
		}
	}
	for i, subset := range spec.GetSubsets() {
		if len(subset.GetLabels()) > 0 {
			pointless(at("spec.subsets", i)+".labels", "the hosts that clients name have no labels, so the subset is all of them", "leave them out, and give the subset a trafficPolicy")
		}
	}
}

// balanced has what TrafficPolicy and PortTrafficPolicy say of choosing an endpoint.
type balanced interface {
	GetLoadBalancer() *networking.LoadBalancerSettings
	GetOutlierDetection() *networking.OutlierDetection
}

// dynamicOfClients tells that gRPC clients cannot call an entry with resolution DYNAMIC_DNS,
// if it has a port for gRPC and some that are known see it.
func (j *judge) dynamicOfClients(namespace string, spec *networking.ServiceEntry) {
	if spec.GetResolution() != networking.ServiceEntry_DYNAMIC_DNS {
		return
	}
	for _, h := range spec.GetHosts() {
		s := j.serviceOf(host.Name(strings.ToLower(h)), namespace)
		if s == nil || s.Namespace != namespace || !isDynamic(s) || !speaksGRPC(s) {
			continue
		}
		for p := range j.known(clientsRow, "").Values() {
			if s.Service().Attributes.ExportTo.VisibleTo(p.Namespace) {
				j.add(notForClients("spec.resolution", p.Namespace))
				return
			}
		}
	}
}

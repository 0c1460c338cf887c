package routing

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/routing"
	"github.com/portolan-mesh/portolan/xds/verdict"
)

// A match has the conditions that matches of all routes share.
type match interface {
	GetPort() uint32
	GetGateways() []string
}

// matches warns of matches whose gateway is none of the VirtualService's, or whose port no
// service of its hosts has.
func (j *judge) matches(vs *routing.VirtualService, written *networking.VirtualService) {
	var asWritten []match
	for _, m := range matchesOf(written) {
		asWritten = append(asWritten, m)
	}
	ports := matchPorts{judge: j, vs: vs}
	i := 0
	for path, m := range matchesOf(vs.Written) {
		of := m.GetGateways()
		for k, name := range of {
			if !slices.Contains(vs.Gateways, name) {
				j.Add(verdict.Verdict{
					Code: verdict.MatchGateway, Field: verdict.At(path+".gateways", k),
					Message: fmt.Sprintf("%q is none of spec.gateways: the match has no effect for it", asWritten[i].GetGateways()[k]),
					Remedy:  "add it to spec.gateways, or leave it out here",
				})
			}
		}
		i++
		if len(of) == 0 {
			of = vs.Gateways
		}
		elsewhere := slices.ContainsFunc(of, func(name string) bool { return name != mesh.MeshGateway && slices.Contains(vs.Gateways, name) })
		if m.GetPort() != 0 && !elsewhere && slices.Contains(of, mesh.MeshGateway) && slices.Contains(vs.Gateways, mesh.MeshGateway) {
			ports.judgePort(path+".port", int(m.GetPort()))
		}
	}
}

// matchesOf iterates over the matches of all routes, with their paths.
func matchesOf(spec *networking.VirtualService) iter.Seq2[string, match] {
	return func(yield func(string, match) bool) {
		for i, r := range spec.GetHttp() {
			for k, m := range r.GetMatch() {
				if !yield(verdict.At(verdict.At("spec.http", i)+".match", k), m) {
					return
				}
			}
		}
		for i, r := range spec.GetTcp() {
			for k, m := range r.GetMatch() {
				if !yield(verdict.At(verdict.At("spec.tcp", i)+".match", k), m) {
					return
				}
			}
		}
		for i, r := range spec.GetTls() {
			for k, m := range r.GetMatch() {
				if !yield(verdict.At(verdict.At("spec.tls", i)+".match", k), m) {
					return
				}
			}
		}
	}
}

// matchPorts compares ports of matches with those of the services of a VirtualService's hosts.
type matchPorts struct {
	*judge
	vs     *routing.VirtualService
	looked bool
	ports  []int // of the services; nil if they are not all known
}

func (p *matchPorts) judgePort(field string, port int) {
	if !p.looked {
		p.looked, p.ports = true, p.portsOfHosts(p.vs)
	}
	if len(p.ports) == 0 || slices.Contains(p.ports, port) {
		return // without services, sidecarHosts reports it
	}
	p.Add(verdict.Verdict{
		Code: verdict.MatchPort, Field: field,
		Message: fmt.Sprintf("%d is no port of a service of the hosts: the match has no effect", port),
		Remedy:  "use a port of a service: " + portNumbers(p.ports) + "; it is the port that clients call, not the targetPort",
	})
}

// portsOfHosts returns the ports of all services that a host of a VirtualService covers or that
// cover it, in order. It returns nil if the hosts cover no service, or too many to look at.
func (j *judge) portsOfHosts(vs *routing.VirtualService) []int {
	var out []int
	some := false
	add := func(s *mesh.ServiceRow) {
		for _, p := range s.Ports() {
			out = append(out, p.Number)
		}
	}
	for _, h := range vs.Hosts {
		looked := 0
		for s := range j.Services(h) {
			if looked++; looked > verdict.MaxLooked {
				return nil
			}
			some = true
			add(s)
		}
		for pattern := range h.Covers() {
			if s := j.coveringService(pattern, vs); s != nil && pattern != h {
				add(s)
			}
		}
	}
	if !some {
		return nil
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// coveringService returns the service of a pattern as the sidecars with a VirtualService see
// it.
func (j *judge) coveringService(pattern host.Name, vs *routing.VirtualService) *mesh.ServiceRow {
	return j.ServiceOf(pattern, proxyNamespace(vs, mesh.MeshGateway))
}

func portNumbers(ports []int) string {
	const most = 5
	var out []string
	for _, p := range ports {
		out = append(out, fmt.Sprint(p))
	}
	if len(out) > most {
		out = append(out[:most], "...")
	}
	return strings.Join(out, ", ")
}

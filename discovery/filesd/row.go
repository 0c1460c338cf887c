package filesd

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/portolan-mesh/portolan/discovery"
)

// youngest is the creation time of all services in files: later than any other, so that a
// ServiceEntry with the same host wins.
var youngest = time.Date(9999, time.December, 31, 0, 0, 0, 0, time.UTC)

// rowOf returns the row of a service, empty if the service has no targets.
func rowOf(of key, targets []*target) discovery.Row {
	row := discovery.Row{Hostname: of.hostname, Namespace: of.namespace}
	if len(targets) == 0 {
		return row
	}
	ports := portsOf(targets)
	name, _, _ := strings.Cut(string(of.hostname), ".")
	service := &discovery.Service{
		Hostname: of.hostname, Address: discovery.UnspecifiedIP, Ports: ports, Resolution: discovery.ClientSideLB, CreationTime: youngest,
		Attributes: discovery.Attributes{Provider: discovery.File, Name: name, Namespace: of.namespace},
	}
	if slices.ContainsFunc(targets, (*target).isName) {
		service.Resolution = discovery.DNSLB
	}
	row.Services = []*discovery.Service{service}
	for _, t := range targets {
		e := t.endpoint
		for _, p := range ports {
			if p.Number == t.port {
				e.ServicePortName, e.ServicePort = p.Name, p.Number
			}
		}
		e.WorkloadName = cmp.Or(e.WorkloadName, name)
		row.Endpoints = append(row.Endpoints, &e)
	}
	slices.SortStableFunc(row.Endpoints, discovery.CompareEndpoints)
	row.Endpoints = slices.CompactFunc(row.Endpoints, func(a, b *discovery.Endpoint) bool {
		return a.ServicePortName == b.ServicePortName && a.Address == b.Address && a.Port == b.Port
	})
	return row
}

// portsOf returns the ports of a service by number. The first target of a port determines its
// protocol.
func portsOf(targets []*target) []discovery.Port {
	var out []discovery.Port
	for _, t := range targets {
		if !slices.ContainsFunc(out, func(p discovery.Port) bool { return p.Number == t.port }) {
			out = append(out, discovery.Port{
				Name: fmt.Sprintf("%s-%d", strings.ToLower(string(t.protocol)), t.port), Number: t.port, Protocol: t.protocol,
			})
		}
	}
	slices.SortFunc(out, func(a, b discovery.Port) int { return cmp.Compare(a.Number, b.Number) })
	return out
}

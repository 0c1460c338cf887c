package consul

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/host"
)

// youngest is when all services of Consul count as created, since Consul does
// not say: after any other. So where a ServiceEntry has the same host and
// namespace, or the same port, the ServiceEntry wins, and among services of
// Consul the first by name.
var youngest = time.Date(9999, time.December, 31, 0, 0, 0, 0, time.UTC)

// rowOf returns the row of a service, given all of its instances in order. If every
// instance is left out the service has no row.
func rowOf(o *Options, name string, instances []*instance) discovery.Row {
	row := discovery.Row{Hostname: host.Name(name + "." + o.Domain), Namespace: o.Namespace}
	instances = slices.DeleteFunc(slices.Clone(instances), func(i *instance) bool { return i.leftOut })
	ports := servicePorts(instances)
	if len(ports) == 0 {
		return row
	}
	service := &discovery.Service{
		Hostname: row.Hostname, Address: addressOfAll(instances), Resolution: discovery.ClientSideLB, CreationTime: youngest,
		Attributes: discovery.Attributes{Provider: discovery.Consul, Name: name, Namespace: o.Namespace},
	}
	names := map[int]string{}
	for _, p := range ports {
		names[p.Number] = p.Name
	}
	service.Ports = ports
	row.Services = []*discovery.Service{service}
	for _, i := range instances {
		for _, p := range i.ports {
			if i.away {
				continue
			}
			e := i.endpoint
			e.Port, e.ServicePortName = p.target, names[p.number]
			row.Endpoints = append(row.Endpoints, &e)
		}
	}
	slices.SortFunc(row.Endpoints, discovery.CompareEndpoints)
	return row
}

// servicePorts are the ports of a service: one for each number that an instance
// serves, named after its protocol.
func servicePorts(instances []*instance) []discovery.Port {
	votes := map[int]map[discovery.Protocol]int{}
	for _, i := range instances {
		for _, p := range i.ports {
			if votes[p.number] == nil {
				votes[p.number] = map[discovery.Protocol]int{}
			}
			votes[p.number][p.protocol]++
		}
	}
	var out []discovery.Port
	for number, of := range votes {
		protocol := elect(of)
		out = append(out, discovery.Port{
			Name: strings.ToLower(string(protocol)) + "-" + fmt.Sprint(number), Number: number, Protocol: protocol,
		})
	}
	slices.SortFunc(out, func(a, b discovery.Port) int { return a.Number - b.Number })
	return out
}

// elect is the protocol that most instances declare, of several the first by
// name; TCP where none does.
func elect(votes map[discovery.Protocol]int) discovery.Protocol {
	winner := discovery.TCP
	most := 0
	for protocol, n := range votes {
		if protocol != discovery.Unsupported && (n > most || n == most && protocol < winner) {
			winner, most = protocol, n
		}
	}
	return winner
}

// disagreement says which port of a service its instances speak different
// protocols on, empty for none.
func disagreement(instances []*instance) string {
	for _, p := range servicePorts(instances) {
		for _, i := range instances {
			for _, own := range i.ports {
				if own.number == p.Number && own.protocol != discovery.Unsupported && own.protocol != p.Protocol {
					return fmt.Sprintf("the instances of port %d say %s and %s: it is taken for %s", p.Number, p.Protocol, own.protocol, p.Protocol)
				}
			}
		}
	}
	return ""
}

// addressOfAll is the address of the service that all instances agree on.
func addressOfAll(instances []*instance) string {
	vip := instances[0].vip
	if vip == "" || slices.ContainsFunc(instances, func(i *instance) bool { return i.vip != vip }) {
		return discovery.UnspecifiedIP
	}
	return vip
}

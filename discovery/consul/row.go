package consul

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/host"
)

// youngest is the creation time of all services of Consul, which does not report one: later
// than any other. So a ServiceEntry wins over a service with the same host and namespace, or
// the same port. Among services of Consul the first by name wins.
var youngest = time.Date(9999, time.December, 31, 0, 0, 0, 0, time.UTC)

// rowOf returns the row of a service, given all its instances in order. The row is empty if
// every instance is left out.
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
			e := i.endpoint
			if i.away {
				e.Health = discovery.OutOfUse
			}
			e.Port, e.ServicePortName, e.ServicePort = p.target, names[p.number], p.number
			row.Endpoints = append(row.Endpoints, &e)
		}
	}
	slices.SortFunc(row.Endpoints, discovery.CompareEndpoints)
	return row
}

// servicePorts returns the ports of a service: one for each number that an instance serves,
// named after its protocol.
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

// elect returns the protocol that most instances declare, the first by name if several tie,
// TCP if none is declared.
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

// disagreement describes a port on which the instances of a service declare different
// protocols, empty if there is none.
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

// addressOfAll returns the address of the service if all instances agree on it.
func addressOfAll(instances []*instance) string {
	vip := instances[0].vip
	if vip == "" || slices.ContainsFunc(instances, func(i *instance) bool { return i.vip != vip }) {
		return discovery.UnspecifiedIP
	}
	return vip
}

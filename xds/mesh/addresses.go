package mesh

import (
	"iter"
	"net/netip"
	"slices"

	"github.com/portolan-mesh/portolan/discovery"
)

// addresses has the hosts by each address that their services have or were
// assigned, in its one spelling.
type addresses struct{ groups[bool] }

var addressRows = addresses{groupsOf[bool](Addresses)}

func (t addresses) follow(from, to *PushContext) {
	for c := range hostRows.diff(from, to) {
		before, after := c.Old.addresses(), c.New.addresses()
		for _, address := range before {
			if !slices.Contains(after, address) {
				t.remove(to, address, c.Key)
			}
		}
		for _, address := range after {
			if !slices.Contains(before, address) {
				t.add(to, address, c.Key, true)
			}
		}
	}
}

// anyFamily is the shape of proxies that use addresses of both families.
var anyFamily = Shape{IPv4: true, IPv6: true}

// addresses are the keys of all addresses of a host, over its namespaces.
func (r *HostRow) addresses() []string {
	if r == nil {
		return nil
	}
	var out []string
	for _, row := range r.Services {
		for _, address := range anyFamily.Addresses(row) {
			out = append(out, addressKey(address))
		}
	}
	return distinct(out)
}

// HostsAt are the hosts that have an address or were assigned it, in order, whether
// the proxy sees them or not: ask Service or ServiceAt of each.
func (v *View) HostsAt(address string) iter.Seq[string] {
	return v.ask(Addresses, addressKey(address), "").(members).Keys()
}

// Wildcard is the address on which a proxy of the shape listens for everyone.
func (s Shape) Wildcard() string {
	if s.IPv6 && !s.IPv4 {
		return "::"
	}
	return discovery.UnspecifiedIP
}

// Addresses are the single IP addresses under which proxies of the shape call a
// service, in the order of its services: its own, else those it was assigned.
func (s Shape) Addresses(r *ServiceRow) []string {
	var out []string
	for _, service := range r.Services {
		if ip, err := netip.ParseAddr(service.Address); err == nil && !ip.IsUnspecified() {
			out = append(out, service.Address)
			continue
		}
		out = append(out, s.assigned(service)...)
	}
	return distinct(out)
}

// Assigned are the Addresses that the service was assigned.
func (s Shape) Assigned(r *ServiceRow) []string {
	var out []string
	for _, service := range r.Services {
		out = append(out, s.assigned(service)...)
	}
	return distinct(out)
}

// assigned are the addresses, of the families of the shape, that a service without an
// address was assigned.
func (s Shape) assigned(service *discovery.Service) []string {
	var out []string
	if service.Address != discovery.UnspecifiedIP {
		return nil
	}
	if s.IPv4 && service.AutoAllocatedIPv4 != "" {
		out = append(out, service.AutoAllocatedIPv4)
	}
	if s.IPv6 && service.AutoAllocatedIPv6 != "" {
		out = append(out, service.AutoAllocatedIPv6)
	}
	return out
}

// distinct are the first of equals, in order.
func distinct(in []string) []string {
	var out []string
	for _, s := range in {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

package mesh

import (
	"net/netip"
	"slices"

	"github.com/portolan-mesh/portolan/discovery"
)

// Ports are the ports of the service: those of the one that answers for the row,
// then those that others of the name add, where these are the same in all but
// address and ports. (Istio: canMergeServices.) A number stands for the first
// port that has it. The caller must not modify it.
func (r *ServiceRow) Ports() []discovery.Port {
	ports := r.Service().Ports
	merged := false
	for _, s := range r.Services[1:] {
		if !mergeable(r.Service(), s) {
			continue
		}
		for _, p := range s.Ports {
			if slices.ContainsFunc(ports, func(o discovery.Port) bool { return o.Number == p.Number }) {
				continue
			}
			if !merged {
				ports, merged = slices.Clone(ports), true
			}
			ports = append(ports, p)
		}
	}
	return ports
}

// Port finds a port of the service by number.
func (r *ServiceRow) Port(number int) (discovery.Port, bool) {
	for _, p := range r.Ports() {
		if p.Number == number {
			return p, true
		}
	}
	return discovery.Port{}, false
}

// Addresses are the single IP addresses under which proxies of a shape call the
// service, in the order of its services: those that it has, and those that it was
// given in their place.
func (r *ServiceRow) Addresses(of Shape) []string {
	var out []string
	for _, s := range r.Services {
		if ip, err := netip.ParseAddr(s.Address); err == nil && !ip.IsUnspecified() {
			out = append(out, s.Address)
			continue
		}
		out = append(out, assigned(s, of)...)
	}
	return distinct(out)
}

// Assigned are those of its addresses that the service was given.
func (r *ServiceRow) Assigned(to Shape) []string {
	var out []string
	for _, s := range r.Services {
		out = append(out, assigned(s, to)...)
	}
	return distinct(out)
}

// assigned are what a service without an address was given, of the families of a
// shape.
func assigned(s *discovery.Service, to Shape) []string {
	var out []string
	if s.Address != discovery.UnspecifiedIP {
		return nil
	}
	if to.IPv4 && s.AutoAllocatedIPv4 != "" {
		out = append(out, s.AutoAllocatedIPv4)
	}
	if to.IPv6 && s.AutoAllocatedIPv6 != "" {
		out = append(out, s.AutoAllocatedIPv6)
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

func mergeable(a, b *discovery.Service) bool {
	return a.Resolution == b.Resolution && a.MeshExternal == b.MeshExternal &&
		a.Attributes.Provider == b.Attributes.Provider &&
		a.Attributes.Labels.Equal(b.Attributes.Labels) &&
		a.Attributes.LabelSelectors.Equal(b.Attributes.LabelSelectors) &&
		slices.Equal(a.Attributes.ExportTo, b.Attributes.ExportTo)
}

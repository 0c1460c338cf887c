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

// Addresses are the single IP addresses under which the service is called, in
// the order of its services.
func (r *ServiceRow) Addresses() []string {
	var out []string
	for _, s := range r.Services {
		ip, err := netip.ParseAddr(s.Address)
		if err == nil && !ip.IsUnspecified() && !slices.Contains(out, s.Address) {
			out = append(out, s.Address)
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

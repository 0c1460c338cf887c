package mesh

import (
	"iter"
	"slices"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/pmap"
)

// hostGroups has the hosts by what they share: whoever makes configuration for one
// of them finds those that it has to make way for, without a look at the rest.
type hostGroups struct {
	// addresses has the hosts by each address that their services have or were
	// given, in its one spelling.
	addresses pmap.Map[pmap.Map[bool]]
	// covered has the hosts that may be routed by HTTP on a port by each pattern that
	// covers them, by CoverKey.
	covered pmap.Map[pmap.Map[bool]]
}

// next follows a host from one row to the next, either of which may be nil.
func (x hostGroups) next(h host.Name, old, row *HostRow) hostGroups {
	before, after := old.addresses(), row.addresses()
	for _, address := range before {
		if !slices.Contains(after, address) {
			x.addresses = withMember(x.addresses, address, string(h), false, false)
		}
	}
	for _, address := range after {
		if !slices.Contains(before, address) {
			x.addresses = withMember(x.addresses, address, string(h), true, true)
		}
	}
	spoke, speaks := old.routable(), row.routable()
	for port := range spoke {
		if !speaks[port] {
			x = x.cover(h, port, false)
		}
	}
	for port := range speaks {
		if !spoke[port] {
			x = x.cover(h, port, true)
		}
	}
	return x
}

// routable are the ports of a host, over its namespaces, on which requests may be
// routed by HTTP: by some proxies also those that declare no protocol.
func (r *HostRow) routable() map[int]bool {
	if r == nil {
		return nil
	}
	out := map[int]bool{}
	for _, row := range r.Services {
		for _, s := range row.Services {
			for _, p := range s.Ports {
				if p.Protocol.IsHTTP() || p.Protocol == discovery.Unsupported {
					out[p.Number] = true
				}
			}
		}
	}
	return out
}

// cover puts a host among those that each of its patterns covers, or takes it
// out.
func (x hostGroups) cover(h host.Name, port int, present bool) hostGroups {
	for pattern := range h.Covers() {
		if pattern.IsWildcard() {
			x.covered = withMember(x.covered, CoverKey(port, pattern), string(h), true, present)
		}
	}
	return x
}

// addresses are the keys of all addresses of a host, over its namespaces.
func (r *HostRow) addresses() []string {
	if r == nil {
		return nil
	}
	var out []string
	for _, row := range r.Services {
		for _, address := range row.Addresses(Shape{IPv4: true, IPv6: true}) {
			out = append(out, addressKey(address))
		}
	}
	return distinct(out)
}

// CoverKey is the key of a pattern in the table of covered hosts.
func CoverKey(port int, pattern host.Name) string { return portKey(port) + "|" + string(pattern) }

// HostsAt are the hosts that have an address or were given it, in order, whether
// the proxy sees them or not: ask Service or ServiceAt of each.
func (v *View) HostsAt(address string) iter.Seq[string] {
	return v.ask(Addresses, addressKey(address), "").(pmap.Map[bool]).Keys()
}

// HTTPHostsUnder are the hosts that may be routed by HTTP on a port and that a
// pattern covers, in order, whether the proxy sees them or not: ask Service or
// ServiceAt of each.
func (v *View) HTTPHostsUnder(pattern host.Name, port int) iter.Seq[string] {
	return v.ask(Covered, CoverKey(port, pattern), "").(pmap.Map[bool]).Keys()
}

package virtualhost

import (
	"net/netip"
	"strings"

	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/xds/mesh"
)

// names returns what clients call a service: its host, the same with a dot at the end,
// and its short names in the DNS domain of the proxy. A short name that a service has
// for its host, or that a VirtualService routes, stands for that.
func (b sidecarBuilder) names(s *mesh.ServiceRow) []string {
	out := []string{b.name(s.Hostname)}
	if strings.HasSuffix(out[0], ".") {
		return out
	}
	if _, err := netip.ParseAddr(out[0]); err != nil {
		out = append(out, out[0]+".")
	}
	for _, short := range b.view.ShortNames(s.Hostname) {
		if b.keepsShort(short) {
			out = append(out, short.Name)
		}
	}
	return out
}

// name is the domain of a host. A host with a dot at its end is the same name as the one
// without. Where a service has that, the host gets a domain that no request has.
func (b sidecarBuilder) name(h host.Name) string {
	if without, dotted := strings.CutSuffix(string(h), "."); dotted && b.service(host.Name(without)) != nil {
		return string(h) + "."
	}
	return string(h)
}

// keepsShort says whether no other host has a claim to a short name.
func (b sidecarBuilder) keepsShort(short host.ShortName) bool {
	if b.service(host.Name(short.Name)) != nil {
		return false
	}
	for _, rival := range short.Rivals {
		if b.service(rival) != nil {
			return false
		}
	}
	return b.port != foreignPort || b.view.VirtualServiceNamed(b.carrier.Listener, host.Name(short.Name)) == nil
}

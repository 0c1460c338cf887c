package virtualhost

import (
	"net/netip"
	"strings"

	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/xds/mesh"
)

// names returns the names by which clients call a service: its host, the host with a
// trailing dot, and its short names in the proxy's DNS domain. It omits a short name if
// another service claims it, or if a VirtualService routes it.
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

// name returns the domain of a host. A host with a trailing dot is the same name as the
// one without. If a service has that one, the dotted host gets a domain that no request
// uses.
func (b sidecarBuilder) name(h host.Name) string {
	if without, dotted := strings.CutSuffix(string(h), "."); dotted && b.service(host.Name(without)) != nil {
		return string(h) + "."
	}
	return string(h)
}

// keepsShort says whether no other host claims a short name.
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

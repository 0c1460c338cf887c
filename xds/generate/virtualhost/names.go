package virtualhost

import (
	"net/netip"
	"strings"

	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/xds/mesh"
)

// names returns the names by which clients call a service: those of its host, and of the
// aliases of the host.
func (b sidecarBuilder) names(s *mesh.ServiceRow) []string {
	out := b.namesOf(s.Hostname)
	for _, alias := range b.view.AliasesAt(b.carrier.Listener, s.Hostname) {
		out = append(out, b.namesOf(alias)...)
	}
	return out
}

// namesOf returns a host, the host with a trailing dot, and its short names in the proxy's
// DNS domain. It omits a short name if another host claims it, or if a VirtualService
// routes it.
func (b sidecarBuilder) namesOf(h host.Name) []string {
	out := []string{b.name(h)}
	if strings.HasSuffix(out[0], ".") {
		return out
	}
	if _, err := netip.ParseAddr(out[0]); err != nil {
		out = append(out, out[0]+".")
	}
	for _, short := range b.view.ShortNames(h) {
		if b.keepsShort(short) {
			out = append(out, short.Name)
		}
	}
	return out
}

// isNamed says whether a service has a virtual host here, or one of which the host is an alias.
func (b sidecarBuilder) isNamed(h host.Name) bool {
	if alias, ok := b.view.AliasAt(b.carrier.Listener, h); ok {
		h = alias.Of
	}
	return b.service(h) != nil
}

// name returns the domain of a host. A host with a trailing dot is the same name as the
// one without. If a service has that one, the dotted host gets a domain that no request
// uses.
func (b sidecarBuilder) name(h host.Name) string {
	if without, dotted := strings.CutSuffix(string(h), "."); dotted && b.isNamed(host.Name(without)) {
		return string(h) + "."
	}
	return string(h)
}

// keepsShort says whether no other host claims a short name.
func (b sidecarBuilder) keepsShort(short host.ShortName) bool {
	if b.isNamed(host.Name(short.Name)) {
		return false
	}
	for _, rival := range short.Rivals {
		if b.isNamed(rival) {
			return false
		}
	}
	return b.port != foreignPort || b.view.VirtualServiceNamed(b.carrier.Listener, host.Name(short.Name)) == nil
}

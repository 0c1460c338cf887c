package mesh

import (
	"strings"

	"github.com/portolan-mesh/portolan/storage/host"
)

// ShortNames returns the short names of a host, as the DNS domain of the proxy completes
// them. A pattern has none. (Istio: GenerateAltVirtualHosts.)
func (v *View) ShortNames(h host.Name) []host.ShortName {
	return host.ParseShortNames(v.ask(Self, selfShortNames, string(h)).(string))
}

// HostsFor returns the hosts that an application next to the proxy may mean by a name, the
// likeliest first: the name itself, the name without a trailing dot, then hosts of which
// it is a short name. It does not record.
func (v *View) HostsFor(name string) []host.Name {
	name = strings.ToLower(name)
	out := []host.Name{host.Name(name)}
	if without, dotted := strings.CutSuffix(name, "."); dotted {
		out = append(out, host.Name(without))
	}
	return append(out, host.Shortened(v.class.Domain, name)...)
}

package config

import (
	"net/netip"
	"slices"

	"github.com/portolan-mesh/portolan/cmd/portolan-agent/capture"
	"github.com/portolan-mesh/portolan/cmd/portolan-agent/nameserver"
	"github.com/portolan-mesh/portolan/discovery/node"
	"github.com/portolan-mesh/portolan/xds/bootstrap"
)

// DNS says how the agent answers questions for names. Its zero value answers what capture redirects
// to it, and asks the resolvers of the machine for all names that are not of the mesh.
type DNS struct {
	// Addresses are where it listens, ADDRESS:PORT; empty means 127.0.0.1:15053 and [::1]:15053.
	// Whoever reaches them may ask for any name.
	Addresses []string `json:"addresses,omitempty"`
	// Resolvers are asked in order, by address or ADDRESS:PORT; empty means those of the machine.
	Resolvers []string `json:"resolvers,omitempty"`
	// Cache is how many of their answers are kept; 0 means 1,000, and -1 none.
	Cache int `json:"cache,omitempty"`
}

func (c Config) validateDNS(fault func(string, ...any)) {
	if c.Proxy.Type != node.Sidecar {
		fault("dns: only a sidecar has names to answer: leave it out")
	}
	listens := c.DNS.listens()
	var port uint16
	for i, text := range c.DNS.Addresses {
		switch at, err := netip.ParseAddrPort(text); {
		case err != nil || at.Port() == 0:
			fault("dns.addresses[%d] %q: give ADDRESS:PORT, such as 127.0.0.1:15053", i, text)
		case port != 0 && at.Port() != port:
			fault("dns.addresses[%d] %q: give all the same port", i, text)
		default:
			port = at.Port()
		}
	}
	for i, text := range c.DNS.Resolvers {
		switch at, err := nameserver.ParseResolver(text); {
		case err != nil || at.Port() == 0:
			fault("dns.resolvers[%d] %q: give the address of a resolver, with or without a port", i, text)
		case slices.Contains(listens, at):
			fault("dns.resolvers[%d] %q: is this server itself: give another", i, text)
		}
	}
	if c.DNS.Cache < -1 {
		fault("dns.cache %d: give a number of answers, or -1 for none", c.DNS.Cache)
	}
	if c.Capture != nil && c.Capture.DNS.Port != 0 {
		fault("capture.dns.port: follows from dns.addresses: leave it out")
	}
}

// listens are the addresses at which the server listens, without those that are none.
func (d DNS) listens() []netip.AddrPort {
	texts := d.Addresses
	if len(texts) == 0 {
		texts = nameserver.DefaultAddresses
	}
	var out []netip.AddrPort
	for _, text := range texts {
		if at, err := netip.ParseAddrPort(text); err == nil {
			out = append(out, at)
		}
	}
	return out
}

// Nameserver returns the options of the DNS server, which c.DNS demands, but for the logger.
func (c Config) Nameserver() nameserver.Options {
	out := nameserver.Options{
		Table:     &nameserver.Table{Namespace: c.Proxy.Namespace, Domain: bootstrap.DefaultDomain},
		Addresses: c.DNS.Addresses, Cache: c.DNS.Cache,
	}
	for _, text := range c.DNS.Resolvers {
		if at, err := nameserver.ParseResolver(text); err == nil { // Validate tells of others
			out.Resolvers = append(out.Resolvers, at)
		}
	}
	return out
}

// questions are those that capture redirects to the server: the ones to the resolvers that programs
// ask, unless the rules name others.
func (c Config) questions(rules capture.DNS) capture.DNS {
	if listens := c.DNS.listens(); rules.Port == 0 && len(listens) > 0 {
		rules.Port = int(listens[0].Port())
	}
	if len(rules.Resolvers) == 0 {
		system, _ := nameserver.SystemFiles.Read() // none is a fault of the rules
		for _, ip := range system.Asked {
			if at := netip.AddrPortFrom(ip, 53); ip.Zone() == "" && !slices.Contains(c.DNS.listens(), at) {
				rules.Resolvers = append(rules.Resolvers, ip.String())
			}
		}
	}
	return rules
}

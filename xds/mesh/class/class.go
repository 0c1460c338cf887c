package class

import (
	"strings"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/labels"
)

// Shape holds the properties of a proxy that generators may read without recording them.
// Only proxies of the same Shape share resources.
type Shape struct {
	Type         discovery.ProxyType
	Interception discovery.InterceptionMode
	IPv4, IPv6   bool
	// DNSCapture: applications next to the proxy connect to the addresses that were
	// assigned to services.
	DNSCapture bool
	// SelfDiscovery: the proxy may balance load between zones, since it knows the
	// endpoints of its own service.
	SelfDiscovery bool
}

// Class holds all properties of a proxy on which its shared configuration depends. It is
// an identity: in every context, proxies of one Class have the same resources, except
// those of their own workloads. It has the names of objects, not their contents; the
// context has these.
type Class struct {
	Shape     Shape
	Namespace string
	// Domain is the DNS domain that completes the short names of services on a sidecar.
	Domain string
	// HTTPProxyPort is the port on which a sidecar is an HTTP proxy according to its own
	// metadata, as in discovery.Proxy.
	HTTPProxyPort string
	// Sidecar is the path of the Sidecar that applies, empty for none.
	Sidecar string
	// Gateways are the paths of the Gateways that select a router, in order.
	Gateways string
	// Ports are the target ports of a router that differ from the ports of its Gateways'
	// servers, as written by routing.TargetPorts.
	Ports string
	// Passed are the hosts of the servers with AUTO_PASSTHROUGH of a router's Gateways,
	// in order. The router passes TLS on to the services under them, by their clusters'
	// SNI names.
	Passed string
	// Selectors lists the selectors of source labels in the configuration that match the
	// proxy's labels.
	Selectors string
	// Clients are the selectors of DestinationRules in its namespace that match the proxy's
	// labels, each followed by a Separator.
	Clients string
	// Traits are the proxy's locality and labels by which some configuration balances
	// load, with their values.
	Traits string
	// Certified: the proxy has its own certificate.
	Certified bool
	// RouteDelta: the proxy takes virtual hosts as separate resources. It is not part of
	// the Shape, since the virtual hosts are the same for proxies that do not.
	RouteDelta bool
}

// Separator stands between the names in a field of a Class.
const Separator = "\n"

// HasSelector says whether the class has a selector.
func (c Class) HasSelector(selector string) bool {
	for s := range strings.SplitSeq(c.Selectors, Separator) {
		if s == selector {
			return true
		}
	}
	return false
}

// HasClientSelector says whether a DestinationRule of the class's namespace with this selector
// applies to the class.
func (c Class) HasClientSelector(selector labels.Instance) bool {
	return strings.Contains(Separator+c.Clients, Separator+selector.String()+Separator)
}

// PassesTLSTo says whether a host is under one to which the class passes TLS on.
func (c Class) PassesTLSTo(h host.Name) bool {
	for name := range strings.SplitSeq(c.Passed, Separator) {
		if name != "" && h.SubsetOf(host.Name(name)) {
			return true
		}
	}
	return false
}

// WithoutTraits returns the class without its traits.
func (c Class) WithoutTraits() Class {
	c.Traits = ""
	return c
}

// Trait returns the value of a trait, empty if it is not set or no configuration reads
// it.
func (c Class) Trait(name string) string {
	for one := range strings.SplitSeq(c.Traits, Separator) {
		if value, ok := strings.CutPrefix(one, name+"="); ok {
			return value
		}
	}
	return ""
}

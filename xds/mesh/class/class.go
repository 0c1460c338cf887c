package class

import (
	"strings"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/labels"
)

// Shape holds what generators may read of a proxy without recording it. Only proxies of
// one shape share resources.
type Shape struct {
	Type         discovery.ProxyType
	Interception discovery.InterceptionMode
	IPv4, IPv6   bool
	// DNSCapture: applications beside the proxy connect to the addresses that
	// services were given.
	DNSCapture bool
	// SelfDiscovery: the proxy may share load among zones, since it knows the endpoints of
	// its own service.
	SelfDiscovery bool
}

// Class holds all properties of a proxy that its shared configuration depends on. It is
// an identity: in every context, proxies of one Class have the same resources, except
// those of their own workloads. It holds names and outcomes, no contents: the objects
// that it names are looked up in the context.
type Class struct {
	Shape     Shape
	Namespace string
	// Domain is the DNS domain of a sidecar, in which applications call services by short
	// names.
	Domain string
	// HTTPProxyPort is the port on which a sidecar is an HTTP proxy by its own metadata, as
	// discovery.Proxy has it.
	HTTPProxyPort string
	// Sidecar is the path of the Sidecar that applies, empty for none.
	Sidecar string
	// Gateways are the paths of the Gateways that select a router, in order.
	Gateways string
	// Ports are the ports on which a router listens in place of those of the servers of its
	// Gateways, as routing.TargetPorts writes them.
	Ports string
	// Passed are the hosts of the services that a router passes TLS on to by the names of
	// their clusters: those of the servers of its Gateways with AUTO_PASSTHROUGH, in order.
	Passed string
	// Selectors lists the selectors of source labels in the configuration that match the
	// proxy's labels.
	Selectors string
	// Clients are the selectors of DestinationRules in its namespace that match the proxy's
	// labels, each followed by a Separator.
	Clients string
	// Traits are the locality and the labels of the proxy by which anything in the
	// configuration balances, with their values.
	Traits string
	// Certified: the proxy has a certificate of its own.
	Certified bool
	// RouteDelta: it takes virtual hosts as resources of their own. It is no part of the
	// Shape, since proxies that do not take them so have the same virtual hosts.
	RouteDelta bool
}

// Separator stands between the names in a field of a Class.
const Separator = "\n"

// Has says whether the class has a selector.
func (c Class) Has(selector string) bool {
	for s := range strings.SplitSeq(c.Selectors, Separator) {
		if s == selector {
			return true
		}
	}
	return false
}

// Calls says whether a DestinationRule of the class's namespace that has a selector is
// for the class.
func (c Class) Calls(selector labels.Instance) bool {
	return strings.Contains(Separator+c.Clients, Separator+selector.String()+Separator)
}

// Passes says whether a host is under one of those that the class passes TLS on to.
func (c Class) Passes(h host.Name) bool {
	for name := range strings.SplitSeq(c.Passed, Separator) {
		if name != "" && h.SubsetOf(host.Name(name)) {
			return true
		}
	}
	return false
}

// WithoutTraits returns the class that has no traits and is equal otherwise.
func (c Class) WithoutTraits() Class {
	c.Traits = ""
	return c
}

// Trait returns the value of a trait, empty where it is not set or nothing asks for it.
func (c Class) Trait(name string) string {
	for one := range strings.SplitSeq(c.Traits, Separator) {
		if value, ok := strings.CutPrefix(one, name+"="); ok {
			return value
		}
	}
	return ""
}

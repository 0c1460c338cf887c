package class

import (
	"strings"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/host"
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
	// Cluster is the cluster of Kubernetes in which the proxy says to be; empty for none. It calls
	// services at their addresses there.
	Cluster string
	// Patched says which types of resources the EnvoyFilters of the proxy's namespaces may patch.
	Patched Patched
}

// Patched is a set of types of resources, apart for the EnvoyFilters of the root namespace and for
// those of the proxy's own.
type Patched uint16

// The types of a Patched, for EnvoyFilters of the root namespace. Own shifts them.
const (
	PatchedClusters Patched = 1 << iota
	PatchedListeners
	PatchedRoutes
	PatchedVirtualHosts
	PatchedExtensions
)

// ownPatched is how far the types of the proxy's own namespace stand behind those of the root
// namespace.
const ownPatched = 8

// Own returns the types for EnvoyFilters of the proxy's own namespace.
func (p Patched) Own() Patched { return p << ownPatched }

// Only returns what of p is about the given types.
func (p Patched) Only(types Patched) Patched { return p & (types | types.Own()) }

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
	// Settings are what the proxy states of its own configuration.
	Settings discovery.ProxySettings
	// Attached names what attaches to the proxy by its labels.
	Attached Attached
	// Ports are the target ports of a router that differ from the ports of its Gateways'
	// servers, as written by routing.TargetPorts.
	Ports string
	// Passed are the hosts of the servers with AUTO_PASSTHROUGH of a router's Gateways,
	// in order. The router passes TLS on to the services under them, by their clusters'
	// SNI names.
	Passed string
	// Certified: the proxy has its own certificate.
	Certified bool
	// SecretCluster is the cluster from which it has that over SDS, empty for none.
	SecretCluster string
	// Returning: the proxy has resources of an earlier stream, and secrets of its namespace are not
	// read yet since the server started. It keeps what it has of these.
	Returning bool
	// ServiceName is the name of the proxy's service in traces, where the mesh has a provider of
	// traces that does not take it from the node; else empty.
	ServiceName string
	// RouteDelta: the proxy takes virtual hosts as separate resources. It is not part of
	// the Shape, since the virtual hosts are the same for proxies that do not.
	RouteDelta bool
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
	c.Attached = c.Attached.Without(Trait)
	return c
}

// Trait returns the value of a trait, empty if it is not set or no configuration reads
// it.
func (c Class) Trait(name string) string {
	for one := range c.Attached.Names(Trait) {
		if value, ok := strings.CutPrefix(one, name+"="); ok {
			return value
		}
	}
	return ""
}

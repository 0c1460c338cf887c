package discovery

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/labels"
)

// Resolution says how a proxy finds the endpoints of a service.
type Resolution int

// The resolutions, with the ServiceEntry values they come from.
const (
	ClientSideLB    Resolution = iota // STATIC: endpoints are pushed
	DNSLB                             // DNS: the proxy resolves all addresses
	DNSRoundRobinLB                   // DNS_ROUND_ROBIN: the proxy resolves and uses one
	Passthrough                       // NONE: the caller names the address
	DynamicDNS                        // DYNAMIC_DNS: the proxy resolves the host that each request or TLS client names
)

// IsDNS says whether proxies resolve the endpoints by DNS. The endpoints are then part of the
// cluster.
func (r Resolution) IsDNS() bool { return r == DNSLB || r == DNSRoundRobinLB }

// String implements fmt.Stringer.
func (r Resolution) String() string {
	switch r {
	case ClientSideLB:
		return "ClientSideLB"
	case DNSLB:
		return "DNSLB"
	case DNSRoundRobinLB:
		return "DNSRoundRobinLB"
	case DynamicDNS:
		return "DynamicDNS"
	default:
		return "Passthrough"
	}
}

// Protocol is the protocol of a port.
type Protocol string

// The protocols a port may declare.
const (
	HTTP        Protocol = "HTTP"
	HTTP2       Protocol = "HTTP2"
	GRPC        Protocol = "GRPC"
	GRPCWeb     Protocol = "GRPC-Web"
	HTTPS       Protocol = "HTTPS"
	TLS         Protocol = "TLS"
	TCP         Protocol = "TCP"
	Mongo       Protocol = "MONGO"
	MySQL       Protocol = "MYSQL"
	Redis       Protocol = "REDIS"
	UDP         Protocol = "UDP"
	HTTPProxy   Protocol = "HTTP_PROXY"
	Unsupported Protocol = "" // not declared
)

// ParseProtocol reads a protocol in any case; unknown ones are Unsupported.
func ParseProtocol(s string) Protocol {
	switch p := Protocol(strings.ToUpper(s)); p {
	case HTTP, HTTP2, GRPC, HTTPS, TLS, TCP, Mongo, MySQL, Redis, UDP, HTTPProxy:
		return p
	case "GRPC-WEB":
		return GRPCWeb
	}
	return Unsupported
}

// IsHTTP says whether requests can be routed by HTTP.
func (p Protocol) IsHTTP() bool { return p == HTTP || p.IsHTTP2() }

// IsHTTP2 says whether servers speak HTTP/2 from the first byte.
func (p Protocol) IsHTTP2() bool { return p == HTTP2 || p.IsGRPC() }

// IsGRPC says whether gRPC is spoken, by programs or by browsers.
func (p Protocol) IsGRPC() bool { return p == GRPC || p == GRPCWeb }

// IsTLS says whether the port carries TLS of clients and servers, whose names routes may
// match.
func (p Protocol) IsTLS() bool { return p == HTTPS || p == TLS }

// IsServed says whether proxies serve the protocol. A service may list ports of UDP and
// HTTP_PROXY, but they have no effect.
func (p Protocol) IsServed() bool { return p != UDP && p != HTTPProxy }

// Port is one port of a service.
type Port struct {
	Name     string
	Number   int
	Protocol Protocol
	// TargetPort is the port of the endpoints of a Passthrough service; 0 keeps their own.
	TargetPort int
}

// Visibility is an exportTo list: namespaces, "*" for all, "~" for none. ParseVisibility
// replaces "." by the object's namespace. Nil is public.
type Visibility []string

// VisibleTo says whether an object with this visibility is visible in a namespace.
func (v Visibility) VisibleTo(namespace string) bool {
	switch {
	case v.Public():
		return true
	case slices.Contains(v, "~"):
		return false
	}
	return slices.Contains(v, namespace)
}

// Public says whether an object with this visibility is visible in all namespaces.
func (v Visibility) Public() bool { return len(v) == 0 || slices.Contains(v, "*") }

// Includes says whether v has every entry of o. "*" is an entry like any other.
func (v Visibility) Includes(o Visibility) bool {
	return !slices.ContainsFunc(o, func(e string) bool { return !slices.Contains(v, e) })
}

// ParseVisibility reads an exportTo list of an object in a namespace; an empty
// list means the mesh's default.
func ParseVisibility(exportTo []string, namespace string, meshDefault []string) Visibility {
	if len(exportTo) == 0 {
		exportTo = meshDefault
	}
	out := make(Visibility, 0, len(exportTo))
	for _, e := range exportTo {
		if e == "." {
			e = namespace
		}
		out = append(out, e)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Service is a named set of endpoints, as one registry knows it under one address. It
// is never modified after it was handed to an XDSUpdater.
type Service struct {
	Hostname host.Name
	// Address is the IP or CIDR of the service, 0.0.0.0 where it has none
	// (Istio's DefaultAddress).
	Address string
	// AutoAllocatedIPv4 and AutoAllocatedIPv6 are addresses that were allocated to a
	// service without an address; empty if there are none.
	AutoAllocatedIPv4, AutoAllocatedIPv6 string
	// ClusterVIPs holds the addresses of the service in each cluster that has its own.
	ClusterVIPs map[string][]string
	Ports       []Port
	Resolution  Resolution
	// MeshExternal is true for a service outside the mesh, to which proxies use no mutual TLS.
	MeshExternal bool
	// ServiceAccounts are the SPIFFE identities of the workloads that may serve it, sorted.
	ServiceAccounts []string
	// CreationTime decides between services of one name: the oldest wins.
	CreationTime time.Time
	Attributes   Attributes
}

// Attributes describes a service beyond what a call needs.
type Attributes struct {
	// Provider is its registry. Name and Namespace name the object that defines it.
	Provider        Provider
	Name, Namespace string
	Labels          labels.Instance
	// LabelSelectors select the workloads of the service; nil for none.
	LabelSelectors labels.Instance
	ExportTo       Visibility
	// ClusterExternalAddresses are the IPs and host names at which the service is reached from outside
	// each cluster, by the name of the cluster.
	ClusterExternalAddresses map[string][]string
	// ExternalName makes the service an alias: where a client sees a service of that host, it calls that one
	// by both names. Where it sees none, the service is one of its own. (Istio: K8sAttributes.ExternalName.)
	ExternalName host.Name
	// Distribution says which endpoints proxies prefer, unless a DestinationRule does.
	// (Istio: Attributes.TrafficDistribution.)
	Distribution labels.Distribution
	// NodeLocal: a proxy uses the endpoints on its own node alone, and one on no node those on none.
	// (Istio: Attributes.NodeLocal.)
	NodeLocal bool
}

// UnspecifiedIP is the Address of a service that has none.
const UnspecifiedIP = "0.0.0.0"

// Port finds a port by number.
func (s *Service) Port(number int) (Port, bool) {
	for _, p := range s.Ports {
		if p.Number == number {
			return p, true
		}
	}
	return Port{}, false
}

// Equal says whether two services are the same in everything that can reach a proxy.
func (s *Service) Equal(o *Service) bool {
	if s == o || s == nil || o == nil {
		return s == o
	}
	return s.Hostname == o.Hostname && s.Address == o.Address &&
		s.AutoAllocatedIPv4 == o.AutoAllocatedIPv4 && s.AutoAllocatedIPv6 == o.AutoAllocatedIPv6 &&
		maps.EqualFunc(s.ClusterVIPs, o.ClusterVIPs, slices.Equal[[]string]) &&
		slices.Equal(s.Ports, o.Ports) && s.Resolution == o.Resolution && s.MeshExternal == o.MeshExternal &&
		slices.Equal(s.ServiceAccounts, o.ServiceAccounts) && s.CreationTime.Equal(o.CreationTime) &&
		s.Attributes.equal(&o.Attributes)
}

func (a *Attributes) equal(b *Attributes) bool {
	return a.Provider == b.Provider && a.Name == b.Name && a.Namespace == b.Namespace &&
		a.Labels.Equal(b.Labels) && a.LabelSelectors.Equal(b.LabelSelectors) &&
		(a.LabelSelectors == nil) == (b.LabelSelectors == nil) && slices.Equal(a.ExportTo, b.ExportTo) &&
		maps.EqualFunc(a.ClusterExternalAddresses, b.ClusterExternalAddresses, slices.Equal[[]string]) &&
		a.ExternalName == b.ExternalName && a.Distribution == b.Distribution && a.NodeLocal == b.NodeLocal
}

// CompareServices orders services of one name: the oldest first, then by name, namespace and
// address.
func CompareServices(a, b *Service) int {
	if c := a.CreationTime.Truncate(time.Second).Compare(b.CreationTime.Truncate(time.Second)); c != 0 {
		return c
	}
	if c := strings.Compare(a.Attributes.Name, b.Attributes.Name); c != 0 {
		return c
	}
	if c := strings.Compare(a.Attributes.Namespace, b.Attributes.Namespace); c != 0 {
		return c
	}
	if c := strings.Compare(string(a.Hostname), string(b.Hostname)); c != 0 {
		return c
	}
	return strings.Compare(a.Address, b.Address)
}

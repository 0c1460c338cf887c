package discovery

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/portolan-mesh/portolan/storage/health"
	"github.com/portolan-mesh/portolan/storage/labels"
)

// Health of an endpoint.
type Health int

// The states an endpoint may be in.
const (
	Healthy Health = iota
	Unhealthy
	Draining
	// OutOfUse: no client is told of the endpoint. It stays what the workload at its address is, so
	// that this keeps its labels, with its policies, and the ports that it serves.
	OutOfUse
)

// Locality is the place of a workload: "region/zone/subzone", and its cluster.
type Locality struct {
	Label   string
	Cluster string
}

// TLS modes of an endpoint.
const (
	TLSModeIstio    = labels.TLSModeIstio
	TLSModeDisabled = labels.TLSModeDisabled
)

// Endpoint is one address at which one port of a service is served (IstioEndpoint in
// Istio's terms). It is never modified.
type Endpoint struct {
	// Address is an IP, a host name (DNS services only) or the absolute path of
	// a unix socket, where Port is 0.
	Address string
	Port    int
	// ServicePortName is the port of the service that it serves, and ServicePort its number.
	// Several objects may give one host ports of one name; 0 serves all of them.
	ServicePortName string
	ServicePort     int
	Labels          labels.Instance
	// ServiceAccount is the SPIFFE identity of the workload, empty for none.
	ServiceAccount string
	Network        string
	Locality       Locality
	// Node is the node of Kubernetes that it runs on, empty for none.
	Node string
	// Weight is at least 1.
	Weight  uint32
	Health  Health
	TLSMode string
	// Check is the active health check that proxies run, zero for none.
	Check health.Check
	// Namespace and WorkloadName name the object it comes from.
	Namespace, WorkloadName string
}

// InUse returns the endpoints that clients are told of. It does not modify the slice, and returns it as
// it is if that is all of them.
func InUse(all []*Endpoint) []*Endpoint {
	out := func(e *Endpoint) bool { return e.Health == OutOfUse }
	if !slices.ContainsFunc(all, out) {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), out)
}

// SPIFFE returns the identity of a service account of a namespace, empty for no account. An
// account that is a whole identity already stays as it is.
func SPIFFE(trustDomain, namespace, account string) string {
	if account == "" || strings.HasPrefix(account, spiffeScheme) {
		return account
	}
	return spiffeScheme + trustDomain + "/ns/" + namespace + "/sa/" + account
}

const spiffeScheme = "spiffe://"

// DefaultTrustDomain is the trust domain where the options of a registry name none.
const DefaultTrustDomain = "cluster.local"

// Equal says whether two endpoints are the same. It allocates nothing.
func (e *Endpoint) Equal(o *Endpoint) bool {
	if e == o || e == nil || o == nil {
		return e == o
	}
	return e.Address == o.Address && e.Port == o.Port &&
		e.ServicePortName == o.ServicePortName && e.ServicePort == o.ServicePort &&
		e.ServiceAccount == o.ServiceAccount &&
		e.Network == o.Network && e.Locality == o.Locality && e.Node == o.Node &&
		e.Weight == o.Weight && e.Health == o.Health && e.TLSMode == o.TLSMode && e.Check == o.Check &&
		e.Namespace == o.Namespace && e.WorkloadName == o.WorkloadName &&
		e.Labels.Equal(o.Labels)
}

// IsFor says whether the endpoint serves a port of its service.
func (e *Endpoint) IsFor(p Port) bool {
	return e.ServicePortName == p.Name && (e.ServicePort == 0 || e.ServicePort == p.Number)
}

// CompareEndpoints orders the endpoints of a service for output.
func CompareEndpoints(a, b *Endpoint) int {
	if c := strings.Compare(a.ServicePortName, b.ServicePortName); c != 0 {
		return c
	}
	if c := cmp.Compare(a.ServicePort, b.ServicePort); c != 0 {
		return c
	}
	if c := strings.Compare(a.Address, b.Address); c != 0 {
		return c
	}
	if c := cmp.Compare(a.Port, b.Port); c != 0 {
		return c
	}
	if c := strings.Compare(a.Namespace, b.Namespace); c != 0 {
		return c
	}
	return strings.Compare(a.WorkloadName, b.WorkloadName)
}

// WorkloadInstance is one workload, before its services are known: a WorkloadEntry, or
// an instance of another registry.
type WorkloadInstance struct {
	// Name and Namespace name the object, and Provider its registry.
	Name, Namespace string
	Provider        Provider
	// Endpoint has everything but the port and service port name.
	Endpoint Endpoint
	// PortMap overrides target ports by service port name.
	PortMap map[string]uint32
	// DNSServiceEntryOnly restricts who may select the workload, since its address is a host
	// name or a unix socket. Only a DNS ServiceEntry may select a host name, only one that is
	// not DNS a unix socket, and a service of another registry neither.
	DNSServiceEntryOnly bool
}

// Equal says whether two workload instances are the same.
func (w *WorkloadInstance) Equal(o *WorkloadInstance) bool {
	if w == o || w == nil || o == nil {
		return w == o
	}
	return w.Name == o.Name && w.Namespace == o.Namespace && w.Provider == o.Provider &&
		w.DNSServiceEntryOnly == o.DNSServiceEntryOnly && maps.Equal(w.PortMap, o.PortMap) &&
		w.Endpoint.Equal(&o.Endpoint)
}

// ServiceInstance is one endpoint of one port of a service.
type ServiceInstance struct {
	Service     *Service
	ServicePort Port
	Endpoint    *Endpoint
}

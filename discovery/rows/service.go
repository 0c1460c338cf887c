package rows

import (
	"cmp"
	"slices"
	"strings"

	"net/netip"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/health"
	"github.com/portolan-mesh/portolan/storage/host"
)

// Key returns the key of the rows of a service: "host/namespace".
func Key(hostname host.Name, namespace string) string {
	return string(hostname) + "/" + namespace
}

// SplitKey is the inverse of Key.
func SplitKey(key string) (host.Name, string) {
	h, namespace, _ := strings.Cut(key, "/")
	return host.Name(h), namespace
}

// Service is the row of a service of one name in one namespace: what all registries say of it
// that can shape a cluster, a listener or a route. It is replaced only when its content
// differs.
type Service struct {
	Hostname  host.Name
	Namespace string
	// Services are the services of all registries and addresses, at least one. The first
	// represents the row; listeners use all.
	Services []*discovery.Service
	// Accounts are the identities of the workloads that may serve it, sorted.
	Accounts []string
	// DNSEndpoints are the endpoints that the proxy resolves itself.
	DNSEndpoints []*discovery.Endpoint
	// Check is the health check of the first endpoint that has one. A proxy uses one check for
	// all endpoints of a service, and leaves out endpoints that need another.
	Check health.Check
}

// Service returns the service that represents the row.
func (r *Service) Service() *discovery.Service { return r.Services[0] }

// ExternalName returns the host that the service stands for to clients that see a service of that host,
// empty for none.
func (r *Service) ExternalName() host.Name { return r.Service().Attributes.ExternalName }

// NewService merges the services and endpoints of one key. Kubernetes services come first,
// then the oldest.
func NewService(services []*discovery.Service, endpoints []*discovery.Endpoint) *Service {
	services = slices.Clone(services)
	slices.SortStableFunc(services, func(a, b *discovery.Service) int {
		ka, kb := a.Attributes.Provider == discovery.Kubernetes, b.Attributes.Provider == discovery.Kubernetes
		switch {
		case ka && !kb:
			return -1
		case kb && !ka:
			return 1
		}
		return discovery.CompareServices(a, b)
	})
	row := &Service{
		Hostname: services[0].Hostname, Namespace: services[0].Attributes.Namespace, Services: services,
	}
	endpoints = discovery.InUse(endpoints)
	for _, s := range services {
		row.Accounts = append(row.Accounts, s.ServiceAccounts...)
	}
	for _, e := range endpoints {
		if e.ServiceAccount != "" {
			row.Accounts = append(row.Accounts, e.ServiceAccount)
		}
		row.Check = cmp.Or(row.Check, e.Check)
	}
	slices.Sort(row.Accounts)
	row.Accounts = slices.Compact(row.Accounts)
	if row.Service().Resolution.IsDNS() {
		row.DNSEndpoints = endpoints
	}
	return row
}

// Equal says whether two rows have the same content.
func (r *Service) Equal(o *Service) bool {
	if r == nil || o == nil {
		return r == o
	}
	return r.Hostname == o.Hostname && r.Namespace == o.Namespace &&
		slices.EqualFunc(r.Services, o.Services, (*discovery.Service).Equal) &&
		slices.Equal(r.Accounts, o.Accounts) && r.Check == o.Check &&
		slices.EqualFunc(r.DNSEndpoints, o.DNSEndpoints, (*discovery.Endpoint).Equal)
}

// Compare orders the services of one host across namespaces.
func Compare(a, b *Service) int {
	return cmp.Or(discovery.CompareServices(a.Service(), b.Service()), strings.Compare(a.Namespace, b.Namespace))
}

// Ports returns the ports of the first service, then further ports of other services with the
// same name if these differ only in address and ports. (Istio: canMergeServices.) If ports
// share a number, the first counts. The caller must not modify the result.
func (r *Service) Ports() []discovery.Port {
	ports := r.Service().Ports
	merged := false
	for _, s := range r.Services[1:] {
		if !mergeable(r.Service(), s) {
			continue
		}
		for _, p := range s.Ports {
			if slices.ContainsFunc(ports, func(o discovery.Port) bool { return o.Number == p.Number }) {
				continue
			}
			if !merged {
				ports, merged = slices.Clone(ports), true
			}
			ports = append(ports, p)
		}
	}
	return ports
}

// Port finds a port of the service by number.
func (r *Service) Port(number int) (discovery.Port, bool) {
	for _, p := range r.Ports() {
		if p.Number == number {
			return p, true
		}
	}
	return discovery.Port{}, false
}

func mergeable(a, b *discovery.Service) bool {
	return a.Resolution == b.Resolution && a.MeshExternal == b.MeshExternal &&
		a.Attributes.Provider == b.Attributes.Provider &&
		a.Attributes.Labels.Equal(b.Attributes.Labels) &&
		a.Attributes.LabelSelectors.Equal(b.Attributes.LabelSelectors) &&
		slices.Equal(a.Attributes.ExportTo, b.Attributes.ExportTo)
}

// Open says whether clients may call the service at any address, because a service of it has
// none and was assigned none.
func (r *Service) Open() bool { return slices.ContainsFunc(r.Services, isOpen) }

func isOpen(s *discovery.Service) bool {
	ip, err := netip.ParseAddr(s.Address)
	return err == nil && ip.IsUnspecified() && s.AutoAllocatedIPv4 == "" && s.AutoAllocatedIPv6 == ""
}

// Headless says whether clients call the service at the addresses of its workloads: it is Open, it
// has resolution NONE, and something says which workloads it has, a cluster of Kubernetes or a
// workloadSelector. It is false for a nil row. (Istio: buildSidecarOutboundListeners.)
func (r *Service) Headless() bool {
	if r == nil {
		return false
	}
	s := r.Service()
	return s.Resolution == discovery.Passthrough && isOpen(s) &&
		(s.Attributes.Provider == discovery.Kubernetes || s.Attributes.LabelSelectors != nil)
}

// Ranges returns the address ranges of the service, in the order of its services.
func (r *Service) Ranges() []netip.Prefix {
	var out []netip.Prefix
	for _, s := range r.Services {
		if p, err := netip.ParsePrefix(s.Address); err == nil && !slices.Contains(out, p.Masked()) {
			out = append(out, p.Masked())
		}
	}
	return out
}

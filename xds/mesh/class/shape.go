package class

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/rows"
)

// Captures says whether the workload's traffic is redirected to the proxy, so that
// listeners match the original destination addresses.
func (s Shape) Captures() bool {
	return s.Type == discovery.Sidecar && s.Interception != discovery.InterceptionNone
}

// RoutesHTTP says whether requests to a port are routed by HTTP: the port declares HTTP,
// or declares nothing and the proxy captures traffic, which it then inspects.
func (s Shape) RoutesHTTP(p discovery.Protocol) bool {
	return p.IsHTTP() || p == discovery.Unsupported && s.Captures()
}

// Wildcard is the wildcard address for listeners of proxies of the shape.
func (s Shape) Wildcard() string {
	if s.IPv6 && !s.IPv4 {
		return "::"
	}
	return discovery.UnspecifiedIP
}

// Addresses returns the single IP addresses at which proxies of the shape call a service,
// in the order of its services. Each service has its own address, else those it was
// assigned. Of the clusters of Kubernetes that have the service, the addresses of the proxy's own
// count, else those of the first. (Istio: Service.GetAllAddressesForProxy.)
func (s Shape) Addresses(r *rows.Service) []string {
	var out []string
	cluster, clusters := s.clusterOf(r), false
	for _, service := range r.Services {
		switch {
		case len(service.ClusterVIPs) > 0:
			if !clusters {
				out, clusters = append(out, s.ofFamily(cluster.ClusterVIPs)...), true
			}
		case hasAddress(service):
			out = append(out, service.Address)
		default:
			out = append(out, s.assigned(service)...)
		}
	}
	return distinct(out)
}

// clusterOf returns the service whose addresses in a cluster the proxy uses, nil if the service has
// none in any.
func (s Shape) clusterOf(r *rows.Service) *discovery.Service {
	var first *discovery.Service
	for _, service := range r.Services {
		switch {
		case len(service.ClusterVIPs) == 0:
		case len(service.ClusterVIPs[s.Cluster]) > 0:
			return service
		case first == nil:
			first = service
		}
	}
	return first
}

// HasFamily says whether proxies of the shape have the IP family of an address.
func (s Shape) HasFamily(ip netip.Addr) bool {
	if ip.Unmap().Is4() {
		return s.IPv4
	}
	return s.IPv6
}

// ofFamily returns the addresses of one cluster that are of the shape's IP families: those of its
// own cluster, else of the first by name.
func (s Shape) ofFamily(vips map[string][]string) []string {
	of, ok := vips[s.Cluster]
	if !ok {
		of = vips[slices.Min(slices.Collect(maps.Keys(vips)))]
	}
	var out []string
	for _, a := range of {
		if ip, err := netip.ParseAddr(a); err == nil && s.HasFamily(ip) {
			out = append(out, a)
		}
	}
	return out
}

// AllAddresses returns all single IP addresses of a service, whoever calls it there.
func AllAddresses(r *rows.Service) []string {
	any := Shape{IPv4: true, IPv6: true}
	out := any.Addresses(r)
	for _, service := range r.Services {
		for _, cluster := range slices.Sorted(maps.Keys(service.ClusterVIPs)) {
			out = append(out, service.ClusterVIPs[cluster]...)
		}
	}
	return distinct(out)
}

// hasAddress says whether a service has a single IP address of its own.
func hasAddress(service *discovery.Service) bool {
	ip, err := netip.ParseAddr(service.Address)
	return err == nil && !ip.IsUnspecified()
}

// Assigned returns the part of Addresses that the service was assigned.
func (s Shape) Assigned(r *rows.Service) []string {
	var out []string
	for _, service := range r.Services {
		out = append(out, s.assigned(service)...)
	}
	return distinct(out)
}

// assigned returns the addresses that a service without its own was assigned, of the
// shape's IP families.
func (s Shape) assigned(service *discovery.Service) []string {
	var out []string
	if service.Address != discovery.UnspecifiedIP {
		return nil
	}
	if s.IPv4 && service.AutoAllocatedIPv4 != "" {
		out = append(out, service.AutoAllocatedIPv4)
	}
	if s.IPv6 && service.AutoAllocatedIPv6 != "" {
		out = append(out, service.AutoAllocatedIPv6)
	}
	return out
}

// distinct removes duplicates and keeps the order.
func distinct(in []string) []string {
	var out []string
	for _, s := range in {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

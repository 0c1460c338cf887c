package class

import (
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
// assigned.
func (s Shape) Addresses(r *rows.Service) []string {
	var out []string
	for _, service := range r.Services {
		if ip, err := netip.ParseAddr(service.Address); err == nil && !ip.IsUnspecified() {
			out = append(out, service.Address)
			continue
		}
		out = append(out, s.assigned(service)...)
	}
	return distinct(out)
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

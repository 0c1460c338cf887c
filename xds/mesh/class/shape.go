package class

import (
	"net/netip"
	"slices"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/rows"
)

// Captures says whether the traffic of the workload is redirected to the proxy,
// so that its listeners stand for the addresses that clients mean.
func (s Shape) Captures() bool {
	return s.Type == discovery.Sidecar && s.Interception != discovery.InterceptionNone
}

// RoutesHTTP says whether requests to a port are routed by HTTP: the port declares HTTP,
// or declares nothing and the proxy captures traffic, which it then inspects.
func (s Shape) RoutesHTTP(p discovery.Protocol) bool {
	return p.IsHTTP() || p == discovery.Unsupported && s.Captures()
}

// Wildcard is the address on which a proxy of the shape listens for everyone.
func (s Shape) Wildcard() string {
	if s.IPv6 && !s.IPv4 {
		return "::"
	}
	return discovery.UnspecifiedIP
}

// Addresses are the single IP addresses under which proxies of the shape call a
// service, in the order of its services: its own, else those it was assigned.
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

// Assigned are the Addresses that the service was assigned.
func (s Shape) Assigned(r *rows.Service) []string {
	var out []string
	for _, service := range r.Services {
		out = append(out, s.assigned(service)...)
	}
	return distinct(out)
}

// assigned are the addresses, of the families of the shape, that a service without an
// address was assigned.
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

// distinct are the first of equals, in order.
func distinct(in []string) []string {
	var out []string
	for _, s := range in {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

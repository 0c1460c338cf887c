package ingressstatus

import "net/netip"

// At returns the LoadBalancer of some addresses and host names, nil for none.
func At(addresses []string) *LoadBalancer {
	if len(addresses) == 0 {
		return nil
	}
	out := &LoadBalancer{}
	for _, a := range addresses {
		if _, err := netip.ParseAddr(a); err == nil {
			out.Ingress = append(out.Ingress, &Point{Ip: a})
		} else {
			out.Ingress = append(out.Ingress, &Point{Hostname: a})
		}
	}
	return out
}

// Addresses returns the addresses and host names of a status.
func (s *IngressStatus) Addresses() (out []string) {
	for _, p := range s.GetLoadBalancer().GetIngress() {
		if p.GetIp() != "" {
			out = append(out, p.GetIp())
		} else {
			out = append(out, p.GetHostname())
		}
	}
	return out
}

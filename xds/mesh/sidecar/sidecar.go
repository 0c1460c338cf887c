package sidecar

import (
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/host"
)

// Sidecar is one Sidecar object. It is never modified.
type Sidecar struct {
	Config *config.Config
	Spec   *networking.Sidecar
	egress []egressHosts // parallel to Spec.Egress
	// EgressProxy receives traffic to unknown hosts; nil lets it go to its original
	// destination.
	EgressProxy *EgressProxy
}

// EgressProxy is the service, port and subset to which a sidecar sends traffic to hosts
// that it does not know.
type EgressProxy struct {
	Host   host.Name
	Port   int
	Subset string
}

// Is says whether the egress proxy is a service of the host; false for nil.
func (p *EgressProxy) Is(h host.Name) bool { return p != nil && p.Host == h }

// New parses the hosts of a Sidecar.
func New(c *config.Config) *Sidecar {
	s := &Sidecar{Config: c, Spec: c.Spec.(*networking.Sidecar)}
	for _, e := range s.Spec.GetEgress() {
		s.egress = append(s.egress, parseEgressHosts(e.GetHosts()))
	}
	policy := s.Spec.GetOutboundTrafficPolicy()
	if to := policy.GetEgressProxy(); to != nil && policy.GetMode() == networking.OutboundTrafficPolicy_ALLOW_ANY {
		name := host.Resolve(to.GetHost(), c.Namespace, c.Domain)
		s.EgressProxy = &EgressProxy{host.Name(strings.ToLower(string(name))), int(to.GetPort().GetNumber()), to.GetSubset()}
	}
	return s
}

// NamedHosts returns the hosts that an egress listener imports by full name; none if s is
// nil.
func (s *Sidecar) NamedHosts(listener int) []host.Name {
	if s == nil || listener >= len(s.egress) {
		return nil
	}
	var out []host.Name
	for _, i := range s.egress[listener].include {
		if !i.host.IsWildcard() {
			out = append(out, i.host)
		}
	}
	return out
}

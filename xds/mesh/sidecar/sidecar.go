package sidecar

import (
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/labels"
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

func (s *Sidecar) selector() labels.Instance { return s.Spec.GetWorkloadSelector().GetLabels() }

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

// Row holds the Sidecars of a namespace: those with a selector first, then the oldest. It
// is never modified; nil is empty.
type Row struct {
	Sidecars []*Sidecar
}

// All returns the Sidecars of the row.
func (r *Row) All() []*Sidecar {
	if r == nil {
		return nil
	}
	return r.Sidecars
}

// Replace returns the row with the Sidecar of curr in the place of that of old; either
// may be nil. It is nil if no Sidecar is left.
func (r *Row) Replace(old, curr *config.Config) *Row {
	list := slices.DeleteFunc(slices.Clone(r.All()), func(s *Sidecar) bool { return s.Config == old })
	if curr != nil {
		list = append(list, New(curr))
	}
	if len(list) == 0 {
		return nil
	}
	slices.SortFunc(list, compare)
	return &Row{Sidecars: list}
}

func compare(a, b *Sidecar) int {
	if as, bs := len(a.selector()) > 0, len(b.selector()) > 0; as != bs {
		if as {
			return -1
		}
		return 1
	}
	return config.Compare(a.Config, b.Config)
}

// Select returns the Sidecar that applies to a workload: the first in its namespace whose
// selector matches, else the one there without a selector, else the root namespace's
// without a selector, else nil. (Istio: getSidecarScope.)
func Select(own, root *Row, workload labels.Instance) *Sidecar {
	for _, s := range own.All() {
		if s.selector().SubsetOf(workload) {
			return s
		}
	}
	for _, s := range root.All() {
		if len(s.selector()) == 0 {
			return s
		}
	}
	return nil
}

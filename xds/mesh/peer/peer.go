package peer

import (
	"maps"
	"slices"

	security "istio.io/api/security/v1beta1"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/labels"
)

// Mode says how a port of a workload takes connections.
type Mode = security.PeerAuthentication_MutualTLS_Mode

// The modes. Unset inherits from the level above; that of the mesh is Permissive.
const (
	Unset      = security.PeerAuthentication_MutualTLS_UNSET
	Disable    = security.PeerAuthentication_MutualTLS_DISABLE
	Permissive = security.PeerAuthentication_MutualTLS_PERMISSIVE
	Strict     = security.PeerAuthentication_MutualTLS_STRICT
)

// Policy is one PeerAuthentication. It is never modified.
type Policy struct {
	Config *config.Config
	// Selector is empty for a policy of a whole namespace or mesh.
	Selector labels.Instance
	Mode     Mode
	// Ports are the modes by port of the workload.
	Ports map[uint32]Mode
}

// NewPolicy reads a PeerAuthentication.
func NewPolicy(c *config.Config) *Policy {
	spec := c.Spec.(*security.PeerAuthentication)
	p := &Policy{Config: c, Selector: spec.GetSelector().GetMatchLabels(), Mode: spec.GetMtls().GetMode()}
	for port, mode := range spec.GetPortLevelMtls() {
		if p.Ports == nil {
			p.Ports = map[uint32]Mode{}
		}
		p.Ports[port] = mode.GetMode()
	}
	return p
}

// Demands says whether the policy demands mutual TLS of anybody.
func (p *Policy) Demands() bool {
	for _, mode := range p.Ports {
		if mode == Strict {
			return true
		}
	}
	return p.Mode == Strict
}

// Policies are the PeerAuthentications of one namespace, the oldest first. They are never
// modified. Nil has none.
type Policies struct{ all []*Policy }

// Replace returns the policies with add in the place of remove; either may be nil. It is
// nil if none is left.
func (p *Policies) Replace(remove, add *config.Config) *Policies {
	out := slices.DeleteFunc(slices.Clone(p.All()), func(o *Policy) bool { return o.Config == remove })
	if add != nil {
		out = append(out, NewPolicy(add))
	}
	if len(out) == 0 {
		return nil
	}
	slices.SortFunc(out, func(a, b *Policy) int { return config.Compare(a.Config, b.Config) })
	return &Policies{out}
}

// All returns the policies, the oldest first.
func (p *Policies) All() []*Policy {
	if p == nil {
		return nil
	}
	return p.all
}

// Wide returns the policy without a selector that counts, nil for none.
func (p *Policies) Wide() *Policy {
	return p.first(func(o *Policy) bool { return len(o.Selector) == 0 })
}

// selecting returns the policy that counts among those that select a workload, nil for
// none.
func (p *Policies) selecting(workload labels.Instance) *Policy {
	return p.first(func(o *Policy) bool { return len(o.Selector) > 0 && o.Selector.SubsetOf(workload) })
}

func (p *Policies) first(meets func(*Policy) bool) *Policy {
	if i := slices.IndexFunc(p.All(), meets); i >= 0 {
		return p.all[i]
	}
	return nil
}

// Scope has the policies that may count for workloads of one namespace. Mesh are those of
// the root namespace. Own are nil for workloads of the root namespace, where a selector
// has no effect. It is comparable: equal scopes give equal answers.
type Scope struct{ Mesh, Own *Policies }

// Decision is a mode with the policy that sets it, nil for the default.
type Decision struct {
	Mode Mode
	By   *Policy
}

// Decide returns how a port of a workload takes connections. Port 0 stands for every port
// that no policy names.
func (s Scope) Decide(workload labels.Instance, port int) Decision {
	out := Decision{Mode: Permissive}
	for _, p := range []*Policy{s.Mesh.Wide(), s.Own.Wide(), s.Own.selecting(workload)} {
		out = out.under(p)
	}
	if p := s.Own.selecting(workload); p != nil && p.Ports[uint32(port)] != Unset {
		return Decision{p.Ports[uint32(port)], p}
	}
	return out
}

// under returns the decision with a policy of the next level; nil changes nothing.
func (d Decision) under(p *Policy) Decision {
	if p == nil || p.Mode == Unset {
		return d
	}
	return Decision{p.Mode, p}
}

// Ports returns the ports of a workload that its policy names, in order.
func (s Scope) Ports(workload labels.Instance) []int {
	p := s.Own.selecting(workload)
	if p == nil {
		return nil
	}
	var out []int
	for _, port := range slices.Sorted(maps.Keys(p.Ports)) {
		out = append(out, int(port))
	}
	return out
}

// Alike says whether all workloads of the scope take connections alike, on all ports.
func (s Scope) Alike() bool {
	return !slices.ContainsFunc(s.Own.All(), func(p *Policy) bool { return len(p.Selector) > 0 })
}

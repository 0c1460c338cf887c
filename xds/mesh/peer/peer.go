package peer

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strconv"

	security "istio.io/api/security/v1beta1"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/storage/phase"
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
	// Config is the object; nil for a policy that was settled before.
	Config *config.Config
	name   string
	// Selector is empty for a policy of a whole namespace or mesh.
	Selector labels.Instance
	Mode     Mode
	// Ports are the modes by port of the workload.
	Ports map[uint32]Mode
}

// NewPolicy reads a PeerAuthentication.
func NewPolicy(c *config.Config) *Policy {
	spec := c.Spec.(*security.PeerAuthentication)
	p := &Policy{Config: c, name: c.Name, Selector: spec.GetSelector().GetMatchLabels(), Mode: spec.GetMtls().GetMode()}
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

// Phase says how far the workloads and clients of a namespace have come to follow a change of its
// policies.
type Phase int

// The phases. A namespace goes through them in this order, and back to ServersChange if its
// policies change on the way.
const (
	// Settled: all follow the policies.
	Settled Phase = iota
	// ServersChange: servers take what the former policies ask for and what the new ones do.
	// Clients follow the former.
	ServersChange
	// ClientsChange: servers take both, and clients follow the new policies.
	ClientsChange
)

// Immediate is the annotation, with the value "none", of a policy that all follow at once, even
// if requests fail meanwhile.
const Immediate = "portolan.io/phase"

// Policies are the PeerAuthentications of one namespace, the oldest first. They are never
// modified. Nil has none.
type Policies struct {
	all    []*Policy
	stored *phase.Peers // of the namespace, nil for none
	before *Policies    // the settled policies, if they differ
	phase  Phase
	stale  bool // see Stale
}

// Replace returns the policies with add in the place of remove; either may be nil. It is
// nil if nothing is left.
func (p *Policies) Replace(remove, add *config.Config) *Policies {
	out := slices.DeleteFunc(slices.Clone(p.All()), func(o *Policy) bool { return o.Config == remove })
	if add != nil {
		out = append(out, NewPolicy(add))
	}
	slices.SortFunc(out, func(a, b *Policy) int { return config.Compare(a.Config, b.Config) })
	return policiesOf(out, p.Stored())
}

// WithStored returns the policies with another PeerPhase of the namespace, nil for none.
func (p *Policies) WithStored(stored *phase.Peers) *Policies { return policiesOf(p.All(), stored) }

func policiesOf(all []*Policy, stored *phase.Peers) *Policies {
	if len(all) == 0 && stored == nil {
		return nil
	}
	out, settled := &Policies{all: all, stored: stored}, &Policies{}
	if stored != nil {
		settled.all = read(stored.Settled)
	}
	digest := out.Digest()
	reached := digest == settled.Digest()
	switch {
	case reached, slices.ContainsFunc(all, immediate):
		out.stale = !reached || stored == nil || stored.Toward != "" || len(all) == 0
		return out
	case stored != nil && stored.Toward == digest:
		out.phase = ClientsChange
	default:
		out.phase = ServersChange
	}
	out.before = settled
	return out
}

func immediate(p *Policy) bool { return p.Config.Annotations[Immediate] == "none" }

// read returns the policies in a PeerPhase.
func read(settled []phase.Policy) []*Policy {
	var out []*Policy
	for _, s := range settled {
		p := &Policy{name: s.Name, Selector: s.Selector, Mode: modeOf(s.Mode)}
		for port, mode := range s.Ports {
			if number, err := strconv.ParseUint(port, 10, 16); err == nil {
				if p.Ports == nil {
					p.Ports = map[uint32]Mode{}
				}
				p.Ports[uint32(number)] = modeOf(mode)
			}
		}
		out = append(out, p)
	}
	return out
}

func modeOf(text string) Mode { return Mode(security.PeerAuthentication_MutualTLS_Mode_value[text]) }

// Write returns what a PeerPhase says of the policies.
func (p *Policies) Write() []phase.Policy {
	var out []phase.Policy
	for _, o := range p.All() {
		w := phase.Policy{Name: o.name, Selector: o.Selector, Mode: o.Mode.String()}
		for port, mode := range o.Ports {
			if w.Ports == nil {
				w.Ports = map[string]string{}
			}
			w.Ports[strconv.FormatUint(uint64(port), 10)] = mode.String()
		}
		out = append(out, w)
	}
	return out
}

// Next returns the PeerPhase after the present phase.
func (p *Policies) Next() *phase.Peers {
	if p.Phase() != ServersChange {
		return p.Last()
	}
	out := &phase.Peers{Toward: p.Digest()}
	if p.stored != nil {
		out.Settled = p.stored.Settled
	}
	return out
}

// Last returns the PeerPhase in which all follow the policies.
func (p *Policies) Last() *phase.Peers { return &phase.Peers{Settled: p.Write()} }

// Digest is equal for policies that ask for the same.
func (p *Policies) Digest() string {
	text, err := json.Marshal(p.Write())
	if err != nil {
		panic(err) // of strings and maps of strings
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// All returns the policies, the oldest first.
func (p *Policies) All() []*Policy {
	if p == nil {
		return nil
	}
	return p.all
}

// Stored returns the PeerPhase of the namespace, nil for none.
func (p *Policies) Stored() *phase.Peers {
	if p == nil {
		return nil
	}
	return p.stored
}

// Phase says how far the namespace has come.
func (p *Policies) Phase() Phase {
	if p == nil {
		return Settled
	}
	return p.phase
}

// Stale says that all follow the policies, and the stored PeerPhase does not say so.
func (p *Policies) Stale() bool { return p != nil && p.stale }

// former returns the policies that all follow.
func (p *Policies) former() *Policies {
	if p.Phase() == Settled {
		return p
	}
	return p.before
}

// ofClients returns the policies that clients follow.
func (p *Policies) ofClients() *Policies {
	if p.Phase() == ServersChange {
		return p.before
	}
	return p
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

// Selected returns the policies that count for a workload: of the mesh, of the namespace, and of
// those that select it, each if there is one.
func (s Scope) Selected(workload labels.Instance) []*Policy {
	return slices.DeleteFunc([]*Policy{s.Mesh.Wide(), s.Own.Wide(), s.Own.selecting(workload)}, func(p *Policy) bool { return p == nil })
}

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

// Serve returns the mode in which a port of a workload takes connections now: while it changes,
// it takes those of both modes.
func (s Scope) Serve(workload labels.Instance, port int) Mode {
	after := s.Decide(workload, port).Mode
	if before := s.former().Decide(workload, port).Mode; before != after {
		return Permissive
	}
	return after
}

// Call returns the mode that clients follow now when they call a port of a workload.
func (s Scope) Call(workload labels.Instance, port int) Mode {
	return Scope{s.Mesh.ofClients(), s.Own.ofClients()}.Decide(workload, port).Mode
}

func (s Scope) former() Scope { return Scope{s.Mesh.former(), s.Own.former()} }

// under returns the decision with a policy of the next level; nil changes nothing.
func (d Decision) under(p *Policy) Decision {
	if p == nil || p.Mode == Unset {
		return d
	}
	return Decision{p.Mode, p}
}

// Ports returns the ports of a workload that its policy names now or named before, in order.
func (s Scope) Ports(workload labels.Instance) []int {
	var out []int
	for _, at := range []Scope{s, s.former()} {
		if p := at.Own.selecting(workload); p != nil {
			for port := range p.Ports {
				out = append(out, int(port))
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

package policy

import (
	"cmp"
	"iter"
	"slices"

	networking "istio.io/api/networking/v1alpha3"
	securityv1beta1 "istio.io/api/security/v1beta1"
	typev1beta1 "istio.io/api/type/v1beta1"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// GatewayLabel is the label of a gateway that has the name of the Gateway of the Kubernetes Gateway
// API by which policies target it. (Istio: GatewayNameLabel.)
const GatewayLabel = "gateway.networking.k8s.io/gateway-name"

// Policy is one policy. It is never modified.
type Policy struct {
	Config   *config.Config
	selector labels.Instance
	// targets are the Gateways that it is for; empty if it targets nothing.
	targets []*typev1beta1.PolicyTargetReference
}

// targeted is the spec of a policy.
type targeted interface {
	GetSelector() *typev1beta1.WorkloadSelector
	GetTargetRef() *typev1beta1.PolicyTargetReference
	GetTargetRefs() []*typev1beta1.PolicyTargetReference
}

// NewPolicy reads an AuthorizationPolicy, a RequestAuthentication, a Telemetry, a WasmPlugin or an
// EnvoyFilter.
func NewPolicy(c *config.Config) *Policy {
	if spec, ok := c.Spec.(*networking.EnvoyFilter); ok {
		return &Policy{Config: c, selector: spec.GetWorkloadSelector().GetLabels(), targets: spec.GetTargetRefs()}
	}
	spec := c.Spec.(targeted)
	p := &Policy{Config: c, selector: spec.GetSelector().GetMatchLabels(), targets: spec.GetTargetRefs()}
	if one := spec.GetTargetRef(); one != nil {
		p.targets = append(slices.Clip(p.targets), one)
	}
	return p
}

// Workload is what policies select by.
type Workload struct {
	Namespace string
	Labels    labels.Instance
	// Gateway: the workload is a gateway.
	Gateway bool
	// Attached says whether a Gateway attaches to the workload by its selector. Only gateways are asked.
	Attached func(gateway config.Key) bool
}

// Selects says whether the policy is for a workload. root is the root namespace, whose policies
// are for workloads of all namespaces. (Istio: WorkloadPolicyMatcher.)
func (p *Policy) Selects(w Workload, root string) bool {
	switch {
	case p.Config.Namespace != root && p.Config.Namespace != w.Namespace:
		return false
	case len(p.targets) > 0:
		return w.Gateway && slices.ContainsFunc(p.targets, func(t *typev1beta1.PolicyTargetReference) bool { return p.targetsGateway(t, w) })
	}
	return p.selector.SubsetOf(w.Labels)
}

// Narrow says whether the policy selects workloads, or targets gateways. If not, it is for a whole
// namespace, or for the mesh.
func (p *Policy) Narrow() bool { return len(p.selector)+len(p.targets) > 0 }

// targetsGateway says whether a target of the policy is a gateway. A Gateway of the mesh stands for
// its selector, so the policy is for the workloads that it would be for with that selector.
func (p *Policy) targetsGateway(t *typev1beta1.PolicyTargetReference, w Workload) bool {
	if key, ok := p.TargetedGateway(t); ok {
		return w.Attached(key)
	}
	return t.GetKind() == schema.Gateway.Kind && p.Config.Namespace == w.Namespace && t.GetName() == w.Labels[GatewayLabel]
}

// TargetedGateway returns the key of the Gateway of networking.istio.io that a target of the policy
// names, one of the policy's namespace; false if the target names something else.
func (p *Policy) TargetedGateway(t *typev1beta1.PolicyTargetReference) (config.Key, bool) {
	key := config.Key{Kind: schema.Gateway, Namespace: p.Config.Namespace, Name: t.GetName()}
	return key, t.GetKind() == schema.Gateway.Kind && t.GetGroup() == schema.Gateway.Group
}

// Targets returns what the policy targets by reference, in the order of its fields. The caller must
// not modify it.
func (p *Policy) Targets() []*typev1beta1.PolicyTargetReference { return p.targets }

// Policies are the policies of one namespace, the oldest first. They are never modified. Nil has
// none.
type Policies struct{ all []*Policy }

// Replace returns the policies with add in the place of remove; either may be nil. It is nil if
// nothing is left.
func (p *Policies) Replace(remove, add *config.Config) *Policies {
	var out []*Policy
	for o := range p.All() {
		if o.Config != remove {
			out = append(out, o)
		}
	}
	if add != nil {
		made := NewPolicy(add)
		at, _ := slices.BinarySearchFunc(out, made, func(a, b *Policy) int { return config.Compare(a.Config, b.Config) })
		out = slices.Insert(out, at, made)
	}
	if len(out) == 0 {
		return nil
	}
	return &Policies{out}
}

// All iterates over the policies, the oldest first.
func (p *Policies) All() iter.Seq[*Policy] {
	if p == nil {
		return func(func(*Policy) bool) {}
	}
	return slices.Values(p.all)
}

// TokenRules returns the rules of RequestAuthentications, in the order of their issuers, and those
// of one issuer in the order of the policies. (Istio: newPolicyApplier.)
func TokenRules(policies []*config.Config) []*securityv1beta1.JWTRule {
	var out []*securityv1beta1.JWTRule
	for _, c := range policies {
		out = append(out, c.Spec.(*securityv1beta1.RequestAuthentication).GetJwtRules()...)
	}
	slices.SortStableFunc(out, func(a, b *securityv1beta1.JWTRule) int { return cmp.Compare(a.GetIssuer(), b.GetIssuer()) })
	return out
}

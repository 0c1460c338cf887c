package destination

import (
	"cmp"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	networking "istio.io/api/networking/v1alpha3"
)

// PolicyFor returns the traffic policy of a port and subset ("" for none); nil if
// nothing is set. A subset overrides the rule block by block. At each level the
// settings of the port replace the settings of the destination as a whole. (Istio:
// MergeSubsetTrafficPolicy, GetPortLevelTrafficPolicy.)
func (r *Rule) PolicyFor(subset string, port int) *networking.TrafficPolicy {
	if r == nil {
		return nil
	}
	policy := atPort(r.Policy, port)
	s := r.Subset(subset)
	if s.GetTrafficPolicy() == nil {
		return policy
	}
	over := atPort(s.GetTrafficPolicy(), port)
	out := &networking.TrafficPolicy{}
	if policy != nil {
		out = proto.Clone(policy).(*networking.TrafficPolicy)
	}
	if over.GetConnectionPool() != nil {
		out.ConnectionPool = over.ConnectionPool
	}
	if over.GetLoadBalancer() != nil {
		out.LoadBalancer = over.LoadBalancer
	}
	if over.GetOutlierDetection() != nil {
		out.OutlierDetection = over.OutlierDetection
	}
	if over.GetTls() != nil {
		out.Tls = over.Tls
	}
	if over.GetRetryBudget() != nil {
		out.RetryBudget = over.RetryBudget
	}
	if over.GetProxyProtocol() != nil {
		out.ProxyProtocol = over.ProxyProtocol
	}
	if over.GetTunnel() != nil {
		out.Tunnel = over.Tunnel
	}
	return out
}

// Hash is the consistent hash of the policy for a port and subset, nil for none.
func (r *Rule) Hash(subset string, port int) *networking.LoadBalancerSettings_ConsistentHashLB {
	if r == nil {
		return nil
	}
	policy, over := r.levels(subset, port)
	return cmp.Or(over.GetLoadBalancer(), policy.GetLoadBalancer()).GetConsistentHash()
}

// IdleTimeout is the time after which the policy of a port and subset closes an idle TCP
// connection. It is nil if nothing is set, and 0 for never.
func (r *Rule) IdleTimeout(subset string, port int) *durationpb.Duration {
	return r.Pool(subset, port).GetTcp().GetIdleTimeout()
}

// Pool is the connection pool of the policy for a port and subset, nil for none.
func (r *Rule) Pool(subset string, port int) *networking.ConnectionPoolSettings {
	if r == nil {
		return nil
	}
	policy, over := r.levels(subset, port)
	return cmp.Or(over.GetConnectionPool(), policy.GetConnectionPool())
}

// Tunnel says how TCP connections to a subset are tunnelled through the endpoints to
// another destination; nil for no tunnel. The subset's setting replaces that of the rule.
// Port-level settings have no tunnel and do not change it.
func (r *Rule) Tunnel(subset string) *networking.TrafficPolicy_TunnelSettings {
	if r == nil {
		return nil
	}
	return cmp.Or(r.Subset(subset).GetTrafficPolicy().GetTunnel(), r.Policy.GetTunnel())
}

// levels returns the policies of the rule and of a subset for a port. The second
// overrides the first block by block.
func (r *Rule) levels(subset string, port int) (policy, over *networking.TrafficPolicy) {
	return atPort(r.Policy, port), atPort(r.Subset(subset).GetTrafficPolicy(), port)
}

// atPort returns the settings of a port, if any. These replace the whole policy.
func atPort(p *networking.TrafficPolicy, port int) *networking.TrafficPolicy {
	for _, s := range p.GetPortLevelSettings() {
		if int(s.GetPort().GetNumber()) == port {
			return &networking.TrafficPolicy{
				ConnectionPool: s.ConnectionPool, LoadBalancer: s.LoadBalancer,
				OutlierDetection: s.OutlierDetection, Tls: s.Tls,
			}
		}
	}
	return p
}

// Part names a setting of a rule that readers query by itself, without the settings of
// the cluster.
type Part string

// The parts.
const (
	HashPart        Part = "hash"
	IdleTimeoutPart Part = "idleTimeout"
	PoolPart        Part = "connectionPool"
	TunnelPart      Part = "tunnel"
)

// In says whether a rule sets the part for a port and subset.
func (p Part) In(r *Rule, subset string, port int) bool {
	switch p {
	case HashPart:
		return r.Hash(subset, port) != nil
	case IdleTimeoutPart:
		return r.IdleTimeout(subset, port) != nil
	case PoolPart:
		return r.Pool(subset, port) != nil
	case TunnelPart:
		return r.Tunnel(subset) != nil
	}
	return false
}

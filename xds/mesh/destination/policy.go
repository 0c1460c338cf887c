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

// IdleTimeout is after how long the policy for a port and subset closes a connection of
// bytes that nothing is sent on: nil where nothing is set, 0 for never.
func (r *Rule) IdleTimeout(subset string, port int) *durationpb.Duration {
	if r == nil {
		return nil
	}
	policy, over := r.levels(subset, port)
	return cmp.Or(over.GetConnectionPool(), policy.GetConnectionPool()).GetTcp().GetIdleTimeout()
}

// Tunnel is how connections of bytes to a port and subset go through the endpoints to
// somewhere else, nil for not at all. A subset's replaces that of the rule. Settings of a
// port have none, and leave it as it is.
func (r *Rule) Tunnel(subset string) *networking.TrafficPolicy_TunnelSettings {
	if r == nil {
		return nil
	}
	return cmp.Or(r.Subset(subset).GetTrafficPolicy().GetTunnel(), r.Policy.GetTunnel())
}

// levels are the policies for a port of the rule and of a subset, of which the second
// overrides the first block by block.
func (r *Rule) levels(subset string, port int) (policy, over *networking.TrafficPolicy) {
	return atPort(r.Policy, port), atPort(r.Subset(subset).GetTrafficPolicy(), port)
}

// atPort picks the settings of a port where there are any, which then stand
// alone.
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

// A Part is what a reader needs of a rule who does not need the cluster's settings.
type Part string

// The parts.
const (
	HashPart        Part = "hash"
	IdleTimeoutPart Part = "idleTimeout"
	TunnelPart      Part = "tunnel"
)

// In says whether a rule sets the part for a port and subset.
func (p Part) In(r *Rule, subset string, port int) bool {
	switch p {
	case HashPart:
		return r.Hash(subset, port) != nil
	case IdleTimeoutPart:
		return r.IdleTimeout(subset, port) != nil
	case TunnelPart:
		return r.Tunnel(subset) != nil
	}
	return false
}

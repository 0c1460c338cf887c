package schema

import (
	"slices"

	networking "istio.io/api/networking/v1alpha3"
)

// level is a traffic policy and its place: that of one port, or that of all other ports.
type level struct {
	at     checker
	policy policy
}

// levelOf returns a block's policy for a port: the port's own policy if there is one, which
// then applies alone.
func levelOf(c checker, p *networking.TrafficPolicy, port uint32) level {
	for i, l := range p.GetPortLevelSettings() {
		if portOf(l) == port {
			return level{c.at("portLevelSettings").index(i), l}
		}
	}
	return level{c, p}
}

// checkFailover warns of settings that prefer near localities without outlier detection,
// which alone notices that a locality fails. A subset inherits from the rule what it does
// not set itself.
func checkFailover(c checker, d *networking.DestinationRule) {
	whole := c.at("trafficPolicy")
	ports := []uint32{0} // stands for those without a policy of their own
	add := func(p *networking.TrafficPolicy) {
		for _, l := range p.GetPortLevelSettings() {
			ports = append(ports, portOf(l))
		}
	}
	add(d.GetTrafficPolicy())
	for _, s := range d.GetSubsets() {
		add(s.GetTrafficPolicy())
	}
	slices.Sort(ports)
	ports = slices.Compact(ports)
	var order []checker
	useful := map[string]bool{} // by the path of a setting
	use := func(rule, over level) {
		by := over
		if by.policy.GetLoadBalancer() == nil {
			by = rule
		}
		s := by.policy.GetLoadBalancer().GetLocalityLbSetting()
		if s == nil || len(s.GetDistribute()) > 0 || s.GetEnabled() != nil && !s.GetEnabled().GetValue() {
			return
		}
		at := by.at.at("loadBalancer", "localityLbSetting")
		name := at.path()
		if _, known := useful[name]; !known {
			order = append(order, at)
		}
		useful[name] = useful[name] || over.policy.GetOutlierDetection() != nil || rule.policy.GetOutlierDetection() != nil
	}
	for _, port := range ports {
		rule := levelOf(whole, d.GetTrafficPolicy(), port)
		use(rule, rule)
		for i, s := range d.GetSubsets() {
			if s.GetTrafficPolicy() != nil {
				use(rule, levelOf(c.at("subsets").index(i).at("trafficPolicy"), s.GetTrafficPolicy(), port))
			}
		}
	}
	for _, at := range order {
		if !useful[at.path()] {
			at.warn("has no effect without outlierDetection, which finds out that a locality fails")
		}
	}
}

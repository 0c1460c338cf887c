package destination

import (
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"
)

// A trait is a property of a proxy that load balancing may depend on: its locality, or
// the value of a label.
const (
	LocalityTrait = "locality"
	LabelTrait    = "label " // and the key of the label
)

// Traits returns the traits that a rule balances by, each once. Without a setting of its
// own, a rule that ejects endpoints takes the setting of the mesh.
func Traits(rule *networking.DestinationRule) []string {
	var out []string
	add := func(balancer *networking.LoadBalancerSettings, outliers *networking.OutlierDetection) {
		setting := balancer.GetLocalityLbSetting()
		if setting != nil || outliers != nil {
			out = append(out, TraitsOf(setting)...)
		}
	}
	all := func(p *networking.TrafficPolicy) {
		add(p.GetLoadBalancer(), p.GetOutlierDetection())
		for _, port := range p.GetPortLevelSettings() {
			add(port.GetLoadBalancer(), port.GetOutlierDetection())
		}
	}
	all(rule.GetTrafficPolicy())
	for _, s := range rule.GetSubsets() {
		all(s.GetTrafficPolicy())
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Off says whether a setting switches the preference of localities off. What it does not
// say is on, in a rule and in the mesh configuration.
func Off(s *networking.LocalityLoadBalancerSetting) bool {
	return s.GetEnabled() != nil && !s.GetEnabled().GetValue()
}

// TraitsOf returns the traits that a setting balances by.
func TraitsOf(s *networking.LocalityLoadBalancerSetting) []string {
	if Off(s) {
		return nil
	}
	out := []string{LocalityTrait}
	for _, priority := range s.GetFailoverPriority() {
		if key, _, valued := strings.Cut(priority, "="); !valued {
			out = append(out, LabelTrait+key)
		}
	}
	return out
}

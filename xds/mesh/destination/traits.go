package destination

import (
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"
)

// A trait is a property of a proxy that load balancing may depend on: its locality, the
// region alone, or the value of a label.
const (
	LocalityTrait = "locality"
	RegionTrait   = "region"
	LabelTrait    = "label " // and the key of the label
)

// Traits returns the traits that a rule balances by, each once. Without a setting of its
// own, a rule that ejects endpoints takes the setting of the mesh.
func Traits(rule *networking.DestinationRule) []string {
	var out []string
	add := func(balancer *networking.LoadBalancerSettings, outliers *networking.OutlierDetection) {
		if zones := balancer.GetZoneAwareLbSetting(); Zoned(zones) {
			out = append(out, TraitsOfZones(zones)...)
			return
		}
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
	return append([]string{LocalityTrait}, labelTraits(s.GetFailoverPriority())...)
}

// Zoned says whether a setting has proxies share load among zones. What it does not say
// is on, in a rule and in the mesh configuration; without a setting it is off.
func Zoned(s *networking.ZoneAwareLoadBalancerSetting) bool {
	return s != nil && (s.GetEnabled() == nil || s.GetEnabled().GetValue())
}

// TraitsOfZones returns the traits that a setting balances by. A proxy tells zones apart
// by itself.
func TraitsOfZones(s *networking.ZoneAwareLoadBalancerSetting) []string {
	if !Zoned(s) {
		return nil
	}
	return append([]string{RegionTrait}, labelTraits(s.GetFailoverPriority())...)
}

// labelTraits are the traits of a failoverPriority.
func labelTraits(priorities []string) (out []string) {
	for _, priority := range priorities {
		if key, _, valued := strings.Cut(priority, "="); !valued {
			out = append(out, LabelTrait+key)
		}
	}
	return out
}

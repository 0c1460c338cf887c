package destination

import (
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/labels"
)

// The traits: properties of a proxy by which load may be balanced. They are its locality,
// its region alone, or the value of a label.
const (
	LocalityTrait = "locality"
	RegionTrait   = "region"
	LabelTrait    = "label " // and the key of the label
)

// Traits returns the traits by which a rule balances, each once. A rule with outlier
// detection but no locality setting takes the mesh's setting.
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

// Off says whether a setting switches locality preference off. It is on by default, in a
// rule and in the mesh configuration.
func Off(s *networking.LocalityLoadBalancerSetting) bool {
	return s.GetEnabled() != nil && !s.GetEnabled().GetValue()
}

// TraitsOf returns the traits by which a setting balances.
func TraitsOf(s *networking.LocalityLoadBalancerSetting) []string {
	if Off(s) {
		return nil
	}
	return append([]string{LocalityTrait}, labelTraits(s.GetFailoverPriority())...)
}

// Zoned says whether a setting has proxies balance load between zones. A setting is on by
// default, in a rule and in the mesh configuration; nil is off.
func Zoned(s *networking.ZoneAwareLoadBalancerSetting) bool {
	return s != nil && (s.GetEnabled() == nil || s.GetEnabled().GetValue())
}

// TraitsOfZones returns the traits by which a setting balances. The zone is not among
// them: the proxy itself compares zones.
func TraitsOfZones(s *networking.ZoneAwareLoadBalancerSetting) []string {
	if !Zoned(s) {
		return nil
	}
	return append([]string{RegionTrait}, labelTraits(s.GetFailoverPriority())...)
}

// labelTraits returns the traits of a failoverPriority.
func labelTraits(priorities []string) (out []string) {
	for _, priority := range priorities {
		if key, _, valued := strings.Cut(priority, "="); !valued {
			out = append(out, LabelTrait+key)
		}
	}
	return out
}

// NodeTrait is the node of Kubernetes that a proxy is on.
const NodeTrait = LabelTrait + discovery.NodeLabel

// distributions has the settings that stand for the distributions of services. (Istio:
// loadbalancer.GetLocalityLbSetting.)
var distributions = map[labels.Distribution]*networking.LocalityLoadBalancerSetting{
	labels.PreferSameZone: {FailoverPriority: []string{"topology.istio.io/network", "topology.kubernetes.io/region", "topology.kubernetes.io/zone"}},
	labels.PreferSameNode: {FailoverPriority: []string{
		"topology.istio.io/network", "topology.kubernetes.io/region", "topology.kubernetes.io/zone", "topology.istio.io/subzone", discovery.NodeLabel,
	}},
}

// Distributed returns the setting that stands for the distribution of a service, nil for none.
func Distributed(d labels.Distribution) *networking.LocalityLoadBalancerSetting {
	return distributions[d]
}

// TraitsOfService returns the traits by which a service itself chooses among its endpoints.
func TraitsOfService(s *discovery.Service) []string {
	out := labelTraits(Distributed(s.Attributes.Distribution).GetFailoverPriority())
	if s.Attributes.NodeLocal && !slices.Contains(out, NodeTrait) {
		out = append(out, NodeTrait)
	}
	return out
}

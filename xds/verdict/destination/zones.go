package destination

import (
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/status"
	"github.com/portolan-mesh/portolan/xds/mesh/destination"
	"github.com/portolan-mesh/portolan/xds/verdict"
)

// zones warns of zone-aware load balancing if no known proxy that uses the rule can do it.
func (j *judge) zones(object *config.Config, spec *networking.DestinationRule) {
	var fields []string
	note := func(path string, l *networking.LoadBalancerSettings) {
		if destination.Zoned(l.GetZoneAwareLbSetting()) {
			fields = append(fields, path+".loadBalancer.zoneAwareLbSetting")
		}
	}
	for path, policy := range verdict.PoliciesOf(spec) {
		note(path, policy.GetLoadBalancer())
		for i, port := range policy.GetPortLevelSettings() {
			note(verdict.At(path+".portLevelSettings", i), port.GetLoadBalancer())
		}
	}
	if len(fields) == 0 || j.someZoned(object) {
		return
	}
	for _, field := range fields {
		j.Add(verdict.Verdict{
			Code: verdict.ZonesUnknown, Field: field,
			Message: "has no effect: no proxy that the rule is for knows the endpoints of its own service. Proxies prefer their region, and no zone",
			Remedy:  "start proxies with portolan bootstrap --self-discovery",
		})
	}
}

// someZoned reports whether a known proxy that uses the rule can balance by zone.
func (j *judge) someZoned(object *config.Config) bool {
	rules := j.Mesh().RulesNamed(destination.HostOf(object))
	i := slices.IndexFunc(rules, func(r *destination.Rule) bool { return slices.Contains(r.Configs, object) })
	for p := range j.Known(verdict.ZonesRow, "").Values() {
		if i < 0 || rules[i].ExportTo.VisibleTo(p.Namespace) &&
			(rules[i].Selector == nil || j.Selects(rules[i].Selector.GetMatchLabels(), pmap.Map[*status.Proxy]{}.Set(p.Node, p))) {
			return true
		}
	}
	return false
}

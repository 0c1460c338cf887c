package destination

import (
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/verdict"
)

// dynamicRule warns of settings that have no effect on services with resolution DYNAMIC_DNS.
// The host that a client names is their one endpoint, so there is nothing to choose from.
func (j *judge) dynamicRule(spec *networking.DestinationRule, services []*mesh.ServiceRow) {
	if len(services) == 0 || slices.ContainsFunc(services, func(s *mesh.ServiceRow) bool { return !verdict.IsDynamic(s) }) {
		return
	}
	pointless := func(field, why, remedy string) {
		j.Add(verdict.Verdict{Code: verdict.Unexpected, Field: field, Message: "has no effect with resolution DYNAMIC_DNS: " + why, Remedy: remedy})
	}
	blocks := func(p balanced, path string) {
		if p.GetLoadBalancer() != nil {
			pointless(path+".loadBalancer", "the host that a client names is the one endpoint", "leave it out")
		}
		if p.GetOutlierDetection().GetMinHealthPercent() > 0 {
			pointless(path+".outlierDetection.minHealthPercent", "requests to a host that is ejected are answered with 503, however many hosts are", "leave it out")
		}
	}
	for path, policy := range verdict.PoliciesOf(spec) {
		blocks(policy, path)
		for i, port := range policy.GetPortLevelSettings() {
			blocks(port, verdict.At(path+".portLevelSettings", i))
		}
	}
	for i, subset := range spec.GetSubsets() {
		if len(subset.GetLabels()) > 0 {
			pointless(verdict.At("spec.subsets", i)+".labels", "the hosts that clients name have no labels, so the subset is all of them", "leave them out, and give the subset a trafficPolicy")
		}
	}
}

// balanced has the settings of TrafficPolicy and PortTrafficPolicy that choose an endpoint.
type balanced interface {
	GetLoadBalancer() *networking.LoadBalancerSettings
	GetOutlierDetection() *networking.OutlierDetection
}

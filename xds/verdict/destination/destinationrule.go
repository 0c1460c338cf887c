package destination

import (
	"fmt"
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/status"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/destination"
	"github.com/portolan-mesh/portolan/xds/verdict"
)

// DestinationRule judges a DestinationRule.
func DestinationRule(j *verdict.Judge, object *config.Config) { (&judge{j}).destinationRule(object) }

// destinationRule judges the host and the subsets of a DestinationRule, also together with the
// rules that it is merged with.
func (j *judge) destinationRule(object *config.Config) {
	spec := object.Spec.(*networking.DestinationRule)
	h := destination.HostOf(object)
	if of, alias := j.AliasOf(h, object.Namespace); alias {
		j.HostAliased("spec.host", spec.GetHost(), h, of)
		return
	}
	var services []*mesh.ServiceRow
	for s := range j.Services(h) {
		services = append(services, s)
		if len(services) == verdict.MaxLooked {
			break
		}
	}
	if len(services) == 0 {
		j.Add(verdict.Verdict{
			Code: verdict.RuleUnused, Field: "spec.host",
			Message: verdict.Named(spec.GetHost(), h) + " is of no service: the rule has no effect",
			Remedy:  "add a ServiceEntry with the host, or mend the name",
		})
	}
	j.merged(object, spec)
	j.clients(object.Namespace, spec)
	j.tunnels(spec, services)
	j.withoutHTTP(spec, services)
	j.dynamicRule(spec, services)
	j.ruleOfNobody(object, spec, services)
	j.localities(object, spec, services)
	j.ruleOfClients(object, spec, services)
	j.zones(object, spec)
	j.encryption(object, spec, services)
	j.emptySubsets(spec.GetSubsets(), services)
}

// clients warns of a workloadSelector that selects no known proxy.
func (j *judge) clients(namespace string, spec *networking.DestinationRule) {
	selector := labels.Instance(spec.GetWorkloadSelector().GetMatchLabels())
	if len(selector) == 0 || j.Selects(selector, j.Known(verdict.SidecarsRow, namespace)) {
		return
	}
	for proxy := range j.Known(verdict.RoutersRow, "").Values() {
		if proxy.Namespace == namespace && j.Selects(selector, pmap.Map[*status.Proxy]{}.Set(proxy.Node, proxy)) {
			return
		}
	}
	j.Add(verdict.Verdict{
		Code: verdict.ClientsEmpty, Field: "spec.workloadSelector",
		Message: fmt.Sprintf("selects no proxy of namespace %s: the rule has no effect until one has the labels %s", namespace, selector),
		Remedy:  "mend the labels, or add the proxy",
	})
}

// tunnels warns of a tunnel if the services have HTTP ports alone: tunnels carry only TCP and
// TLS connections.
func (j *judge) tunnels(spec *networking.DestinationRule, services []*mesh.ServiceRow) {
	for _, s := range services {
		if slices.ContainsFunc(s.Ports(), func(p discovery.Port) bool { return !p.Protocol.IsHTTP() }) {
			return
		}
	}
	if len(services) == 0 {
		return
	}
	for path, policy := range verdict.PoliciesOf(spec) {
		if policy.GetTunnel() != nil {
			j.Add(verdict.Verdict{
				Code: verdict.Unexpected, Field: path + ".tunnel", Message: "has no effect: it is for connections of TCP and TLS, and all ports of the service speak HTTP",
				Remedy: "leave it out, or declare the protocol of the port as TCP",
			})
		}
	}
}

// merged warns of the parts of a rule that have no effect because of older rules of the same
// host, namespace and exportTo.
func (j *judge) merged(object *config.Config, spec *networking.DestinationRule) {
	h := destination.HostOf(object)
	j.Read(verdict.RulesRow, string(h))
	for _, r := range j.Mesh().RulesNamed(h) {
		place := slices.Index(r.Configs, object)
		if place < 0 {
			continue
		}
		for _, older := range r.Configs[:place] {
			if old := older.Spec.(*networking.DestinationRule); old.GetTrafficPolicy() != nil && spec.GetTrafficPolicy() != nil {
				j.Add(verdict.Verdict{
					Code: verdict.PolicyTwice, Field: "spec.trafficPolicy", Other: older.Key(),
					Message: fmt.Sprintf("has no effect, as %s has one for the same host and is older", older.Key()),
					Remedy:  "put both into one DestinationRule",
				})
				break
			}
		}
		for i, subset := range spec.GetSubsets() {
			j.duplicateSubset(verdict.At("spec.subsets", i)+".name", subset.GetName(), r.Configs[:place])
		}
		return
	}
}

func (j *judge) duplicateSubset(field, name string, before []*config.Config) {
	for _, older := range before {
		for _, subset := range older.Spec.(*networking.DestinationRule).GetSubsets() {
			if subset.GetName() == name {
				j.Add(verdict.Verdict{
					Code: verdict.SubsetTwice, Field: field, Other: older.Key(),
					Message: fmt.Sprintf("%q is a subset of %s too, which is older: this one has no effect", name, older.Key()),
					Remedy:  "give it another name",
				})
				return
			}
		}
	}
}

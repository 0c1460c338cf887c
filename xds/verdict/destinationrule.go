package verdict

import (
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/status"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/destination"
)

// destinationRule judges the host and the subsets of a DestinationRule, also beside
// those that it is merged with.
func (j *judge) destinationRule(object *config.Config) {
	spec := object.Spec.(*networking.DestinationRule)
	h := destination.HostOf(object)
	var services []*mesh.ServiceRow
	for s := range j.services(h) {
		services = append(services, s)
		if len(services) == maxLooked {
			break
		}
	}
	if len(services) == 0 {
		j.add(Verdict{
			Code: RuleUnused, Field: "spec.host",
			Message: named(spec.GetHost(), h) + " is of no service: the rule has no effect",
			Remedy:  "add a ServiceEntry with the host, or mend the name",
		})
	}
	j.merged(object, spec)
	j.clients(object.Namespace, spec)
	j.tunnels(spec, services)
	j.dynamicRule(spec, services)
	j.ruleOfNobody(object, spec, services)
	j.localities(object, spec, services)
	j.ruleOfClients(object, spec, services)
	j.zones(object, spec)
	j.encryption(object, spec, services)
	for i, subset := range spec.GetSubsets() {
		j.emptySubset(at("spec.subsets", i), subset, services)
	}
}

// clients judges whether a selector of client proxies selects one that is known.
func (j *judge) clients(namespace string, spec *networking.DestinationRule) {
	selector := labels.Instance(spec.GetWorkloadSelector().GetMatchLabels())
	if len(selector) == 0 || j.selects(selector, j.known(sidecarsRow, namespace)) {
		return
	}
	for proxy := range j.known(routersRow, "").Values() {
		if proxy.Namespace == namespace && j.selects(selector, pmap.Map[*status.Proxy]{}.Set(proxy.Node, proxy)) {
			return
		}
	}
	j.add(Verdict{
		Code: ClientsEmpty, Field: "spec.workloadSelector",
		Message: fmt.Sprintf("selects no proxy of namespace %s: the rule has no effect until one has the labels %s", namespace, selector),
		Remedy:  "mend the labels, or add the proxy",
	})
}

// tunnels judges whether connections of bytes may go to the services, since tunnels take
// nothing else.
func (j *judge) tunnels(spec *networking.DestinationRule, services []*mesh.ServiceRow) {
	for _, s := range services {
		if slices.ContainsFunc(s.Ports(), func(p discovery.Port) bool { return !p.Protocol.IsHTTP() }) {
			return
		}
	}
	if len(services) == 0 {
		return
	}
	for path, policy := range policiesOf(spec) {
		if policy.GetTunnel() != nil {
			j.add(Verdict{
				Code: Unexpected, Field: path + ".tunnel", Message: "has no effect: it is for connections of TCP and TLS, and all ports of the service speak HTTP",
				Remedy: "leave it out, or declare the protocol of the port as TCP",
			})
		}
	}
}

// policiesOf iterates over the traffic policies of a rule and of its subsets, with their
// paths.
func policiesOf(spec *networking.DestinationRule) iter.Seq2[string, *networking.TrafficPolicy] {
	return func(yield func(string, *networking.TrafficPolicy) bool) {
		if p := spec.GetTrafficPolicy(); p != nil && !yield("spec.trafficPolicy", p) {
			return
		}
		for i, s := range spec.GetSubsets() {
			if p := s.GetTrafficPolicy(); p != nil && !yield(at("spec.subsets", i)+".trafficPolicy", p) {
				return
			}
		}
	}
}

// maxLooked bounds what is looked at for one field that covers many.
const maxLooked = 100

// emptySubset judges whether a subset selects an endpoint of one of the services.
func (j *judge) emptySubset(field string, subset *networking.Subset, services []*mesh.ServiceRow) {
	selector, some := labels.Instance(subset.GetLabels()), false
	for _, s := range services {
		for _, e := range j.endpoints(s) {
			if some = true; selector.SubsetOf(e.Labels) {
				return
			}
		}
	}
	if !some || len(selector) == 0 {
		return // the services have no endpoint at all
	}
	j.add(Verdict{
		Code: SubsetEmpty, Field: field,
		Message: fmt.Sprintf("%q selects no endpoint of the service, since none has the labels %s: requests to it are answered with 503", subset.GetName(), selector),
		Remedy:  "mend the labels, or give them to endpoints",
	})
}

// merged judges what of a rule has no effect beside older rules of the same host,
// namespace and exportTo.
func (j *judge) merged(object *config.Config, spec *networking.DestinationRule) {
	h := destination.HostOf(object)
	j.read(rulesRow, string(h))
	for _, r := range j.mesh().RulesNamed(h) {
		place := slices.Index(r.Configs, object)
		if place < 0 {
			continue
		}
		for _, older := range r.Configs[:place] {
			if old := older.Spec.(*networking.DestinationRule); old.GetTrafficPolicy() != nil && spec.GetTrafficPolicy() != nil {
				j.add(Verdict{
					Code: PolicyTwice, Field: "spec.trafficPolicy", Other: older.Key(),
					Message: fmt.Sprintf("has no effect, as %s has one for the same host and is older", older.Key()),
					Remedy:  "put both into one DestinationRule",
				})
				break
			}
		}
		for i, subset := range spec.GetSubsets() {
			j.subsetTwice(at("spec.subsets", i)+".name", subset.GetName(), r.Configs[:place])
		}
		return
	}
}

func (j *judge) subsetTwice(field, name string, before []*config.Config) {
	for _, older := range before {
		for _, subset := range older.Spec.(*networking.DestinationRule).GetSubsets() {
			if subset.GetName() == name {
				j.add(Verdict{
					Code: SubsetTwice, Field: field, Other: older.Key(),
					Message: fmt.Sprintf("%q is a subset of %s too, which is older: this one has no effect", name, older.Key()),
					Remedy:  "give it another name",
				})
				return
			}
		}
	}
}

func subsetsOf(r *destination.Rule) string {
	var out []string
	for _, s := range r.Subsets {
		out = append(out, s.GetName())
	}
	return strings.Join(out, ", ")
}

func portsOf(s *mesh.ServiceRow) string {
	var out []string
	for _, p := range s.Ports() {
		out = append(out, strconv.Itoa(p.Number))
	}
	return strings.Join(out, ", ")
}

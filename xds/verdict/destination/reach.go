package destination

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/status"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/destination"
	"github.com/portolan-mesh/portolan/xds/verdict"
)

// reach returns the namespaces of the proxies that use a rule: those of its exportTo if the
// rule is in the namespace of a service or in the root namespace, else its own alone.
func (j *judge) reach(object *config.Config, services []*mesh.ServiceRow) discovery.Visibility {
	j.Read(verdict.RulesRow, string(destination.HostOf(object)))
	exportTo := discovery.Visibility{"~"}
	for _, r := range j.Mesh().RulesNamed(destination.HostOf(object)) {
		if slices.Contains(r.Configs, object) {
			exportTo = r.ExportTo
			break
		}
	}
	switch own := object.Namespace; {
	case j.isCommon(own, services):
		return exportTo
	case exportTo.VisibleTo(own):
		return discovery.Visibility{own}
	}
	return discovery.Visibility{"~"}
}

// isCommon reports whether proxies of other namespaces use the rules of a namespace, too.
func (j *judge) isCommon(namespace string, services []*mesh.ServiceRow) bool {
	return namespace == j.Mesh().MeshConfig().GetRootNamespace() ||
		slices.ContainsFunc(services, func(s *mesh.ServiceRow) bool { return s.Namespace == namespace })
}

// reached iterates over the known proxies of a table (PlacedRow, UnplacedRow) in the namespaces
// of a reach.
func (j *judge) reached(of discovery.Visibility, table verdict.Row) iter.Seq[*status.Proxy] {
	namespaces := []string{""}
	if !of.Public() {
		namespaces = of
	}
	return func(yield func(*status.Proxy) bool) {
		for _, namespace := range namespaces {
			for p := range j.Known(table, namespace).Values() {
				if !yield(p) {
					return
				}
			}
		}
	}
}

// refused reports whether a rule has no effect since another namespace owns its host. An own
// verdict tells of that.
func (j *judge) refused(object *config.Config) bool {
	return !slices.ContainsFunc(j.Mesh().RulesNamed(destination.HostOf(object)), func(r *destination.Rule) bool { return slices.Contains(r.Configs, object) })
}

// ruleOfNobody warns of a rule that no known proxy uses because of its namespace or exportTo.
func (j *judge) ruleOfNobody(object *config.Config, spec *networking.DestinationRule, services []*mesh.ServiceRow) {
	if len(services) == 0 || len(spec.GetWorkloadSelector().GetMatchLabels()) > 0 {
		return
	}
	of := j.reach(object, services)
	if of.Public() || j.refused(object) {
		return
	}
	for _, table := range []verdict.Row{verdict.PlacedRow, verdict.UnplacedRow} {
		for range j.reached(of, table) {
			return
		}
	}
	own := object.Namespace
	v := verdict.Verdict{Code: verdict.RuleOfNobody, Field: "spec.exportTo", Remedy: "add the namespaces of its clients"}
	switch {
	case j.isCommon(own, services):
		v.Message = fmt.Sprintf("is for namespaces without a proxy (%s): the rule has no effect", strings.Join(of, ", "))
	case !of.VisibleTo(own):
		v.Message = fmt.Sprintf("leaves %s out, and no other proxies use the rule, since no service of the host is in %s: it has no effect", own, own)
		v.Remedy = fmt.Sprintf("move the rule to %s, the namespace of the service, or to that of its clients", services[0].Namespace)
	default:
		v.Field, v.Message = "metadata.namespace", fmt.Sprintf("%s has no proxy, and no others use the rule, since no service of the host is there: it has no effect", own)
		v.Remedy = fmt.Sprintf("move the rule to %s, the namespace of the service, or to that of its clients", services[0].Namespace)
	}
	j.Add(v)
}

// localities warns of a rule that prefers localities if no endpoint, or no proxy that uses the
// rule, has a locality.
func (j *judge) localities(object *config.Config, spec *networking.DestinationRule, services []*mesh.ServiceRow) {
	var settings []string
	for path, policy := range verdict.PoliciesOf(spec) {
		if prefers(policy.GetLoadBalancer()) {
			settings = append(settings, path)
		}
		for i, port := range policy.GetPortLevelSettings() {
			if prefers(port.GetLoadBalancer()) {
				settings = append(settings, verdict.At(path+".portLevelSettings", i))
			}
		}
	}
	if len(settings) == 0 || len(services) == 0 || slices.ContainsFunc(services, verdict.IsDynamic) {
		return
	}
	tell := func(message, remedy string) {
		for _, path := range settings {
			j.Add(verdict.Verdict{Code: verdict.LocalityUnknown, Field: path + ".loadBalancer.localityLbSetting", Message: message, Remedy: remedy})
		}
	}
	if j.placeless(services) {
		tell("goes by where endpoints run, and no endpoint of the service says it: proxies take all for one unknown locality", "give the endpoints, or the WorkloadEntries, a locality")
	}
	if p := j.unplacedClient(j.reach(object, services)); p != nil {
		tell(fmt.Sprintf("goes by where proxies run, and none of those that use the rule says it, such as %s: they take the locality for unknown", p.Node), "start the proxies with portolan bootstrap --locality, or give the WorkloadEntries at their addresses a locality")
	}
}

// prefers reports whether a load balancer goes by localities. failoverPriority does not count:
// its labels need not be those of localities.
func prefers(b *networking.LoadBalancerSettings) bool {
	s := b.GetLocalityLbSetting()
	return s != nil && !destination.Off(s) && len(s.GetDistribute())+len(s.GetFailover()) > 0
}

// placeless reports whether the services have endpoints, but none with a locality.
func (j *judge) placeless(services []*mesh.ServiceRow) bool {
	some := false
	for _, s := range services {
		for _, e := range j.Endpoints(s) {
			if some = true; e.Locality.Label != "" {
				return false
			}
		}
	}
	return some
}

// unplacedClient returns the first known proxy of some namespaces if none of them has a
// locality, else nil. It looks up the workloads of at most MaxLooked proxies.
func (j *judge) unplacedClient(of discovery.Visibility) *status.Proxy {
	for range j.reached(of, verdict.PlacedRow) {
		return nil
	}
	var first *status.Proxy
	looked := 0
	for p := range j.reached(of, verdict.UnplacedRow) {
		proxy := verdict.ProxyOf(p)
		for _, address := range proxy.IPAddresses {
			j.ReadMesh(mesh.InstancesKey(address))
		}
		if j.Mesh().PlaceOf(proxy).Locality != "" {
			return nil
		}
		if first == nil {
			first = p
		}
		if looked++; looked == verdict.MaxLooked {
			break
		}
	}
	return first
}

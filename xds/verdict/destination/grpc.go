package destination

import (
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/status"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/destination"
	"github.com/portolan-mesh/portolan/xds/verdict"
)

// ruleOfClients warns of fields that proxyless gRPC clients ignore, if one of the services
// speaks gRPC and the rule is for known clients.
func (j *judge) ruleOfClients(object *config.Config, spec *networking.DestinationRule, services []*mesh.ServiceRow) {
	fields := verdict.RuleNotForGRPC(spec)
	if len(fields) == 0 || !slices.ContainsFunc(services, verdict.SpeaksGRPC) {
		return
	}
	rules := j.Mesh().RulesNamed(destination.HostOf(object))
	at := slices.IndexFunc(rules, func(r *destination.Rule) bool { return slices.Contains(r.Configs, object) })
	if at < 0 {
		return
	}
	for p := range j.Known(verdict.ClientsRow, "").Values() {
		if !rules[at].ExportTo.VisibleTo(p.Namespace) ||
			rules[at].Selector != nil && !j.Selects(rules[at].Selector.GetMatchLabels(), pmap.Map[*status.Proxy]{}.Set(p.Node, p)) {
			continue
		}
		for _, field := range fields {
			j.Add(verdict.NotTaken(field, p.Namespace))
		}
		return
	}
}

package mesh

import (
	"slices"
	"strconv"
	"strings"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/xds/mesh/class"
	"github.com/portolan-mesh/portolan/xds/mesh/destination"
)

// RuleRow holds the rules of one host name or pattern.
type RuleRow = destination.Row

// rules holds the DestinationRules by host or pattern.
type rules struct{ tableOf[*RuleRow] }

var (
	ruleRows        = rules{tableOf[*RuleRow]{Rules}}
	rulePatternRows = tableOf[bool]{rulePatterns}
)

func (t rules) follow(from, to *PushContext) {
	eachClaimant(from, to, destinationRulePath, func(c pmap.Change[*config.Config]) {
		if c.HasOld {
			t.change(to, string(destination.HostOf(c.Old)), c.Old, nil)
		}
		if c.HasNew && len(to.refused(c.New)) == 0 {
			t.change(to, string(destination.HostOf(c.New)), nil, c.New)
		}
	})
}

// changed adds the hosts that each changed rule covers, and the hosts for which patterns may have
// begun or ceased to count.
func (t rules) changed(from, to *PushContext, keys []RowKey) []RowKey {
	for c := range t.diff(from, to) {
		for row := range to.hostsMatching(host.Name(c.Key)) {
			keys = append(keys, RowKey{Rules, string(row.Hostname)})
		}
	}
	for c := range ownerRows.diff(from, to) {
		keys = append(keys, RowKey{Rules, c.Key})
	}
	return keys
}

func (t rules) answer(v *View, key, args string) any { return v.ruleOrPart(host.Name(key), args) }

// change replaces one object in a row.
func (t rules) change(p *PushContext, key string, remove, add *config.Config) {
	row := t.rowsOf(p).Value(key).Replace(host.Name(key), remove, add, p.mesh.GetDefaultDestinationRuleExportTo())
	if host.Name(key).IsWildcard() {
		rulePatternRows.put(p, key, true, row != nil)
	}
	t.put(p, key, row, row != nil)
}

// rulePart returns the rule of a service if it sets the part for a port and subset, else
// nil. Readers that need only the part do not depend on rules without it.
func (v *View) rulePart(part destination.Part, s *ServiceRow, subset string, port int) *destination.Rule {
	args := strings.Join([]string{s.Namespace, string(part), subset, strconv.Itoa(port)}, class.Separator)
	return v.ask(Rules, string(s.Hostname), args).(*destination.Rule)
}

// forServer ends the args of a query for a service's rule as the workload that serves it
// sees the rule.
const forServer = class.Separator + "server"

// ruleOrPart answers Rule, ServerRule and rulePart.
func (v *View) ruleOrPart(h host.Name, args string) *destination.Rule {
	serviceNamespace, server := strings.CutSuffix(args, forServer)
	asked := strings.Split(serviceNamespace, class.Separator)
	selects := func(l labels.Instance) bool { return v.class.Attached.Has(class.Client, l.String()) }
	if server {
		selects = nil
	}
	rule := v.rule(h, asked[0], selects)
	if len(asked) != 4 {
		return rule
	}
	if port, err := strconv.Atoi(asked[3]); err != nil || !destination.Part(asked[1]).In(rule, asked[2], port) {
		return nil
	}
	return rule
}

func (v *View) rule(h host.Name, serviceNamespace string, selects func(labels.Instance) bool) *destination.Rule {
	all := ruleRows.rowsOf(v.push)
	client := destination.Client{
		Namespace: v.scope.Namespace, ServiceNamespace: serviceNamespace, RootNamespace: v.push.mesh.GetRootNamespace(),
		Selects: selects,
	}
	if rulePatternRows.rowsOf(v.push).Len() == 0 {
		return client.Choose(all.Value(string(h)).All()).Best()
	}
	var best destination.Choice
	for name := range h.Covers() {
		if best = best.Or(client.Choose(v.push.permittedRules(h, name))); best.Own != nil {
			break
		}
	}
	return best.Best()
}

// permittedRules returns the rules of a name or pattern that have effect for a host that it covers.
func (p *PushContext) permittedRules(h, name host.Name) []*destination.Rule {
	rules := ruleRows.rowsOf(p).Value(string(name)).All()
	if !name.IsWildcard() || ownerRows.rowsOf(p).Len() == 0 {
		return rules
	}
	return slices.DeleteFunc(slices.Clone(rules), func(r *destination.Rule) bool {
		return slices.ContainsFunc(r.Configs, func(c *config.Config) bool { return !p.permitsPattern(h, c, name) })
	})
}

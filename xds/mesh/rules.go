package mesh

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/pmap"
)

// Rule is the DestinationRules of one host, one namespace and one exportTo,
// merged: the subsets of all, the first of a name kept, and the first traffic
// policy. It is never modified.
type Rule struct {
	Host      host.Name
	Namespace string
	ExportTo  discovery.Visibility
	Policy    *networking.TrafficPolicy
	Subsets   []*networking.Subset
	// Configs are the objects that it was merged from, the oldest first.
	Configs []*config.Config
}

// Subset finds a subset by name, nil where there is none.
func (r *Rule) Subset(name string) *networking.Subset {
	if r == nil {
		return nil
	}
	for _, s := range r.Subsets {
		if s.GetName() == name {
			return s
		}
	}
	return nil
}

// RuleRow is the rules of one host name or pattern, one per namespace and
// exportTo, the oldest first.
type RuleRow struct {
	Rules   []*Rule
	sources []*config.Config
}

// rules has the DestinationRules by host or pattern.
type rules struct{ tableOf[*RuleRow] }

var (
	ruleRows        = rules{tableOf[*RuleRow]{Rules}}
	rulePatternRows = tableOf[bool]{rulePatterns}
)

func (t rules) follow(from, to *PushContext) {
	eachObject(from, to, destinationRulePath, func(c pmap.Change[*config.Config]) {
		if c.HasOld {
			t.change(to, ruleKey(c.Old), c.Old, nil)
		}
		if c.HasNew {
			t.change(to, ruleKey(c.New), nil, c.New)
		}
	})
}

// changed adds, of a changed rule, the hosts that it covers.
func (t rules) changed(from, to *PushContext, keys []RowKey) []RowKey {
	for c := range t.diff(from, to) {
		for row := range to.hostsMatching(host.Name(c.Key)) {
			keys = append(keys, RowKey{Rules, string(row.Hostname)})
		}
	}
	return keys
}

func (t rules) answer(v *View, key, args string) any { return v.ruleOrPart(host.Name(key), args) }

// ruleExport applies the mesh's default export to rules: "." is honoured, anything else
// is public. (Istio: setDestinationRules.)
func ruleExport(meshDefault []string) []string {
	if slices.Contains(meshDefault, ".") {
		return []string{"."}
	}
	return []string{"*"}
}

func ruleKey(c *config.Config) string {
	return strings.ToLower(string(host.Resolve(c.Spec.(*networking.DestinationRule).GetHost(), c.Namespace, c.Domain)))
}

// change replaces one source of a row.
func (t rules) change(p *PushContext, key string, remove, add *config.Config) {
	var sources []*config.Config
	if row := t.of(p).Value(key); row != nil {
		sources = slices.DeleteFunc(slices.Clone(row.sources), func(c *config.Config) bool { return c == remove })
	}
	if add != nil {
		sources = append(sources, add)
	}
	if host.Name(key).IsWildcard() {
		rulePatternRows.put(p, key, true, len(sources) > 0)
	}
	if len(sources) == 0 {
		t.put(p, key, nil, false)
		return
	}
	slices.SortFunc(sources, config.Compare)
	t.put(p, key, mergeRules(key, sources, ruleExport(p.mesh.GetDefaultDestinationRuleExportTo())), true)
}

// mergeRules merges the sources of a row, oldest first. Rules whose namespace or
// exportTo differ stay apart, except that a rule for more namespaces counts also
// in the older ones for fewer. (Istio: mergeDestinationRule.)
func mergeRules(key string, sources []*config.Config, defaultExport []string) *RuleRow {
	row := &RuleRow{sources: sources}
	for _, c := range sources {
		spec := c.Spec.(*networking.DestinationRule)
		exportTo := discovery.ParseVisibility(spec.GetExportTo(), c.Namespace, defaultExport)
		same := false
		for _, r := range row.Rules {
			if r.Namespace == c.Namespace && exportTo.Includes(r.ExportTo) {
				r.merge(c, spec)
				same = same || len(r.ExportTo) == len(exportTo)
			}
		}
		if !same {
			r := &Rule{Host: host.Name(key), Namespace: c.Namespace, ExportTo: exportTo}
			r.merge(c, spec)
			row.Rules = append(row.Rules, r)
		}
	}
	return row
}

// merge adds a younger rule while r is made.
func (r *Rule) merge(c *config.Config, spec *networking.DestinationRule) {
	r.Configs = append(r.Configs, c)
	if r.Policy == nil {
		r.Policy = spec.GetTrafficPolicy()
	}
	for _, s := range spec.GetSubsets() {
		if r.Subset(s.GetName()) == nil {
			r.Subsets = append(r.Subsets, s)
		}
	}
}

// PolicyFor returns the traffic policy of a port and subset ("" for none); nil if
// nothing is set. A subset overrides the rule block by block. At each level the
// settings of the port replace the settings of the destination as a whole. (Istio:
// MergeSubsetTrafficPolicy, GetPortLevelTrafficPolicy.)
func (r *Rule) PolicyFor(subset string, port int) *networking.TrafficPolicy {
	if r == nil {
		return nil
	}
	policy := atPort(r.Policy, port)
	s := r.Subset(subset)
	if s.GetTrafficPolicy() == nil {
		return policy
	}
	over := atPort(s.GetTrafficPolicy(), port)
	out := &networking.TrafficPolicy{}
	if policy != nil {
		out = proto.Clone(policy).(*networking.TrafficPolicy)
	}
	if over.GetConnectionPool() != nil {
		out.ConnectionPool = over.ConnectionPool
	}
	if over.GetLoadBalancer() != nil {
		out.LoadBalancer = over.LoadBalancer
	}
	if over.GetOutlierDetection() != nil {
		out.OutlierDetection = over.OutlierDetection
	}
	if over.GetTls() != nil {
		out.Tls = over.Tls
	}
	if over.GetRetryBudget() != nil {
		out.RetryBudget = over.RetryBudget
	}
	if over.GetProxyProtocol() != nil {
		out.ProxyProtocol = over.ProxyProtocol
	}
	return out
}

// Hash is the consistent hash of the policy for a port and subset, nil for none.
func (r *Rule) Hash(subset string, port int) *networking.LoadBalancerSettings_ConsistentHashLB {
	if r == nil {
		return nil
	}
	policy, over := r.levels(subset, port)
	return cmp.Or(over.GetLoadBalancer(), policy.GetLoadBalancer()).GetConsistentHash()
}

// IdleTimeout is after how long the policy for a port and subset closes a connection of
// bytes that nothing is sent on: nil where nothing is set, 0 for never.
func (r *Rule) IdleTimeout(subset string, port int) *durationpb.Duration {
	if r == nil {
		return nil
	}
	policy, over := r.levels(subset, port)
	return cmp.Or(over.GetConnectionPool(), policy.GetConnectionPool()).GetTcp().GetIdleTimeout()
}

// levels are the policies for a port of the rule and of a subset, of which the second
// overrides the first block by block.
func (r *Rule) levels(subset string, port int) (policy, over *networking.TrafficPolicy) {
	return atPort(r.Policy, port), atPort(r.Subset(subset).GetTrafficPolicy(), port)
}

// A rulePart is what a reader needs of a rule who does not need the cluster's settings.
type rulePart string

const (
	hashPart        rulePart = "hash"
	idleTimeoutPart rulePart = "idleTimeout"
)

// has says whether a rule sets the part for a port and subset.
func (p rulePart) has(r *Rule, subset string, port int) bool {
	switch p {
	case hashPart:
		return r.Hash(subset, port) != nil
	case idleTimeoutPart:
		return r.IdleTimeout(subset, port) != nil
	}
	return false
}

// ask returns the rule of a service if it sets the part, else nil. Readers that need only
// the part ignore other rules.
func (p rulePart) ask(v *View, s *ServiceRow, subset string, port int) *Rule {
	args := strings.Join([]string{s.Namespace, string(p), subset, strconv.Itoa(port)}, separator)
	return v.ask(Rules, string(s.Hostname), args).(*Rule)
}

// ruleOrPart is the answer to Rule, and to a question for a part.
func (v *View) ruleOrPart(h host.Name, args string) *Rule {
	asked := strings.Split(args, separator)
	rule := v.rule(h, asked[0])
	if len(asked) != 4 {
		return rule
	}
	if port, err := strconv.Atoi(asked[3]); err != nil || !rulePart(asked[1]).has(rule, asked[2], port) {
		return nil
	}
	return rule
}

func (v *View) rule(h host.Name, serviceNamespace string) *Rule {
	all := ruleRows.of(v.context)
	if rulePatternRows.of(v.context).Len() == 0 {
		return v.visibleRules(all.Value(string(h)), serviceNamespace).best()
	}
	var best visibleRules
	for name := range h.Covers() {
		found := v.visibleRules(all.Value(string(name)), serviceNamespace)
		if found.own != nil {
			return found.own
		}
		best.service, best.root = cmp.Or(best.service, found.service), cmp.Or(best.root, found.root)
	}
	return best.best()
}

// visibleRules are the rules of a row that a class may use for a service: the first
// visible rule of the class's own namespace, of the service's, and of the root
// namespace.
type visibleRules struct {
	own, service, root *Rule
}

func (r visibleRules) best() *Rule { return cmp.Or(r.own, r.service, r.root) }

func (v *View) visibleRules(row *RuleRow, serviceNamespace string) visibleRules {
	var out visibleRules
	if row == nil {
		return out
	}
	own, root := v.scope.Namespace, v.context.mesh.GetRootNamespace()
	for _, r := range row.Rules {
		if !r.ExportTo.VisibleTo(own) {
			continue
		}
		// In the root namespace only a private rule is meant for its own clients;
		// the others are for all, and come last.
		if own != root || slices.Equal(r.ExportTo, discovery.Visibility{root}) {
			take(&out.own, r, own)
		}
		take(&out.service, r, serviceNamespace)
		take(&out.root, r, root)
	}
	return out
}

// take keeps the first rule of a namespace.
func take(slot **Rule, r *Rule, namespace string) {
	if *slot == nil && r.Namespace == namespace {
		*slot = r
	}
}

// atPort picks the settings of a port where there are any, which then stand
// alone.
func atPort(p *networking.TrafficPolicy, port int) *networking.TrafficPolicy {
	for _, s := range p.GetPortLevelSettings() {
		if int(s.GetPort().GetNumber()) == port {
			return &networking.TrafficPolicy{
				ConnectionPool: s.ConnectionPool, LoadBalancer: s.LoadBalancer,
				OutlierDetection: s.OutlierDetection, Tls: s.Tls,
			}
		}
	}
	return p
}

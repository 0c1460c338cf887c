package mesh

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
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

// ruleIndex has the DestinationRules by host.
type ruleIndex struct {
	defaultExport []string
	rules         pmap.Map[*RuleRow]
	patterns      int // how many of the rows are of patterns
}

// next follows one changed DestinationRule.
func (x ruleIndex) next(c pmap.Change[*config.Config]) ruleIndex {
	if c.HasOld {
		x = x.with(ruleKey(c.Old), c.Old, nil)
	}
	if c.HasNew {
		x = x.with(ruleKey(c.New), nil, c.New)
	}
	return x
}

// ruleExport is what the mesh's default export means for rules: "." is honoured,
// anything else is public. (Istio: setDestinationRules.)
func ruleExport(meshDefault []string) []string {
	if slices.Contains(meshDefault, ".") {
		return []string{"."}
	}
	return []string{"*"}
}

func ruleKey(c *config.Config) string {
	return strings.ToLower(string(host.Resolve(c.Spec.(*networking.DestinationRule).GetHost(), c.Namespace, c.Domain)))
}

// with replaces one source of a row.
func (x ruleIndex) with(key string, remove, add *config.Config) ruleIndex {
	var sources []*config.Config
	if row := x.rules.Value(key); row != nil {
		sources = slices.DeleteFunc(slices.Clone(row.sources), func(c *config.Config) bool { return c == remove })
	}
	if add != nil {
		sources = append(sources, add)
	}
	if host.Name(key).IsWildcard() {
		x.patterns += min(len(sources), 1) - present(x.rules.Value(key))
	}
	if len(sources) == 0 {
		x.rules = x.rules.Delete(key)
		return x
	}
	slices.SortFunc(sources, config.Compare)
	x.rules = x.rules.Set(key, mergeRules(key, sources, x.defaultExport))
	return x
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

// PolicyFor is the traffic policy of a port and subset ("" for none): a subset
// overrides the rule block by block, and at each level the settings of the port
// replace those of the destination as a whole. Nil where nothing is set.
// (Istio: MergeSubsetTrafficPolicy, GetPortLevelTrafficPolicy.)
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
	return out
}

// Hash is the consistent hash of the policy for a port and subset, nil for none.
func (r *Rule) Hash(subset string, port int) *networking.LoadBalancerSettings_ConsistentHashLB {
	if r == nil {
		return nil
	}
	balancer := atPort(r.Policy, port).GetLoadBalancer()
	if over := atPort(r.Subset(subset).GetTrafficPolicy(), port).GetLoadBalancer(); over != nil {
		balancer = over
	}
	return balancer.GetConsistentHash()
}

// ruleVia is the answer of Rule, and of Hash: the rule where that says one.
func (v *View) ruleVia(h host.Name, via string) *Rule {
	namespace, hashed, ofHash := strings.Cut(via, separator)
	rule := v.rule(h, namespace)
	if !ofHash {
		return rule
	}
	subset, text, _ := strings.Cut(hashed, separator)
	if port, err := strconv.Atoi(text); err != nil || rule.Hash(subset, port) == nil {
		return nil
	}
	return rule
}

// rule is the answer of Rule.
func (v *View) rule(h host.Name, serviceNamespace string) *Rule {
	if v.context.rules.patterns == 0 {
		return v.visibleRules(v.context.rules.rules.Value(string(h)), serviceNamespace).best()
	}
	var best visibleRules
	for name := range h.Covers() {
		found := v.visibleRules(v.context.rules.rules.Value(string(name)), serviceNamespace)
		if found.own != nil {
			return found.own
		}
		best.service, best.root = cmp.Or(best.service, found.service), cmp.Or(best.root, found.root)
	}
	return best.best()
}

// visibleRules are the rules of a row that a class may use for a service: the
// first visible one of the class's own namespace, of the service's and of the
// root namespace.
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

package mesh

import (
	"cmp"
	"iter"
	"strings"

	security "istio.io/api/security/v1beta1"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/mesh/class"
	"github.com/portolan-mesh/portolan/xds/mesh/policy"
)

// policies holds the policies of a kind by namespace.
type policies struct {
	tableOf[*policy.Policies]
	kind config.GroupVersionKind
}

var (
	policyRows    = policies{tableOf[*policy.Policies]{Policies}, schema.AuthorizationPolicy}
	tokenRuleRows = policies{tableOf[*policy.Policies]{TokenRules}, schema.RequestAuthentication}
)

func (t policies) follow(from, to *PushContext) {
	eachObject(from, to, t.kind.Group+"/"+t.kind.Kind+"/", func(c pmap.Change[*config.Config]) {
		object := cmp.Or(c.New, c.Old)
		row := t.rowsOf(to).Value(object.Namespace).Replace(c.Old, c.New)
		t.put(to, object.Namespace, row, row != nil)
	})
}

// OwnPolicies returns the AuthorizationPolicies that are for the workload: those of the root
// namespace, then those of its own, each from the oldest. Only a workload's own resources may ask.
//
// Two workloads of a namespace that the same policies select answer alike, so they share what is
// built from these.
func (v *View) OwnPolicies() []*config.Config { return v.selecting(policyRows) }

// OwnTokenRules returns the rules of the RequestAuthentications that are for the workload, in the
// order of their issuers. None overrides another. Only a workload's own resources may ask.
func (v *View) OwnTokenRules() []*security.JWTRule {
	return policy.TokenRules(v.selecting(tokenRuleRows))
}

// selecting returns the policies of a table that are for the workload, and records them.
func (v *View) selecting(t policies) []*config.Config {
	for _, namespace := range v.policyNamespaces() {
		v.ask(t.table, namespace, "")
	}
	v.ask(Self, selfPolicies, t.kind.Kind)
	return v.ownPolicies(t).policies
}

// policyNamespaces returns the namespaces whose policies may be for the workload.
func (v *View) policyNamespaces() []string {
	root := v.RootNamespace()
	if v.class.Namespace == root {
		return []string{root}
	}
	return []string{root, v.class.Namespace}
}

// rowsOfPolicies iterates over the rows that decide which policies are for the workload.
func (v *View) rowsOfPolicies() iter.Seq[RowKey] {
	return func(yield func(RowKey) bool) {
		for _, namespace := range v.policyNamespaces() {
			if !yield(RowKey{policyRows.table, namespace}) || !yield(RowKey{tokenRuleRows.table, namespace}) {
				return
			}
		}
		for row := range v.ownInstances() {
			if !yield(row) {
				return
			}
		}
	}
}

// RootNamespace is the root namespace of the mesh. It does not record: all is built again if
// another becomes it.
func (v *View) RootNamespace() string { return v.push.mesh.GetRootNamespace() }

// selectedForWorkload are the policies of a table that are for a workload.
type selectedForWorkload struct {
	policies []*config.Config
	keys     SelectedPolicies
}

// ownPolicies selects the policies of a table for the workload, once.
func (v *View) ownPolicies(t policies) *selectedForWorkload {
	if v.workload == nil {
		return &selectedForWorkload{keys: SelectedPolicies{kind: t.kind}}
	}
	if out := v.workload.selected[t.table]; out != nil {
		return out
	}
	out := &selectedForWorkload{}
	w := policyWorkload(v.workload.Proxy, v.workload.place(), v.class.Attached)
	for _, namespace := range v.policyNamespaces() {
		for p := range t.rowsOf(v.push).Value(namespace).All() {
			if p.Selects(w, v.RootNamespace()) {
				out.policies = append(out.policies, p.Config)
			}
		}
	}
	out.keys = selected(t.kind, out.policies)
	if v.workload.selected == nil {
		v.workload.selected = map[Table]*selectedForWorkload{}
	}
	v.workload.selected[t.table] = out
	return out
}

// SelectedPolicies are the policies of a kind that are for a workload, PeerAuthentications too.
type SelectedPolicies struct {
	kind  config.GroupVersionKind
	names string // NAMESPACE/NAME, a line each
}

// Each calls do with the keys of the policies.
func (s SelectedPolicies) Each(do func(config.Key)) {
	for line := range strings.Lines(s.names) {
		namespace, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "/")
		do(config.Key{Kind: s.kind, Namespace: namespace, Name: name})
	}
}

// policiesOf returns the table of a kind of policies.
func policiesOf(kind string) policies {
	if kind == tokenRuleRows.kind.Kind {
		return tokenRuleRows
	}
	return policyRows
}

func selected(kind config.GroupVersionKind, policies []*config.Config) SelectedPolicies {
	var names strings.Builder
	for _, c := range policies {
		names.WriteString(c.Namespace + "/" + c.Name + "\n")
	}
	return SelectedPolicies{kind, names.String()}
}

// IsFor says whether a policy is for a proxy.
func (p *PushContext) IsFor(one *policy.Policy, proxy *discovery.Proxy) bool {
	return one.Selects(policyWorkload(proxy, p.placeOf(proxy), p.attached(proxy)), p.mesh.GetRootNamespace())
}

// policyWorkload returns what policies select a proxy by. The Gateways that attach to it are in its
// class.
func policyWorkload(proxy *discovery.Proxy, place discovery.Place, attached class.Attached) policy.Workload {
	return policy.Workload{
		Namespace: proxy.Namespace, Labels: place.Labels, Gateway: proxy.Type == discovery.Router,
		Attached: func(gateway config.Key) bool { return attached.Has(class.Gateway, gateway.Path()) },
	}
}

// TokenRules iterates over the rules of all RequestAuthentications, by namespace, the oldest first.
func (p *PushContext) TokenRules() iter.Seq[*security.JWTRule] {
	return func(yield func(*security.JWTRule) bool) {
		for _, row := range tokenRuleRows.rowsOf(p).All() {
			for one := range row.All() {
				for _, rule := range one.Config.Spec.(*security.RequestAuthentication).GetJwtRules() {
					if !yield(rule) {
						return
					}
				}
			}
		}
	}
}

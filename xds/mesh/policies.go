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
	"github.com/portolan-mesh/portolan/xds/mesh/service"
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
	return v.ownPolicies(t)
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
		for _, ip := range strings.Fields(v.ips()) {
			if !yield(RowKey{Instances, service.AddressKey(ip)}) {
				return
			}
		}
	}
}

// RootNamespace is the root namespace of the mesh. It does not record: all is built again if
// another becomes it.
func (v *View) RootNamespace() string { return v.push.mesh.GetRootNamespace() }

func (v *View) ownPolicies(t policies) []*config.Config {
	if v.workload == nil {
		return nil
	}
	w := v.push.policyWorkload(v.workload, v.class.Attached)
	var out []*config.Config
	for _, namespace := range v.policyNamespaces() {
		for p := range t.rowsOf(v.push).Value(namespace).All() {
			if p.Selects(w, v.RootNamespace()) {
				out = append(out, p.Config)
			}
		}
	}
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

// selectedPolicies returns the policies of a kind that are for the workload.
func (v *View) selectedPolicies(kind string) SelectedPolicies {
	t := policyRows
	if kind == tokenRuleRows.kind.Kind {
		t = tokenRuleRows
	}
	return selected(t.kind, v.ownPolicies(t))
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
	return one.Selects(p.policyWorkload(proxy, p.attached(proxy)), p.mesh.GetRootNamespace())
}

// policyWorkload returns what policies select a proxy by. The Gateways that attach to it are in its
// class.
func (p *PushContext) policyWorkload(proxy *discovery.Proxy, attached class.Attached) policy.Workload {
	return policy.Workload{
		Namespace: proxy.Namespace, Labels: p.placeOf(proxy).Labels, Gateway: proxy.Type == discovery.Router,
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

package mesh

import (
	"iter"
	"strings"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/mesh/policy"
)

// policies holds the policies about requests by namespace.
type policies struct{ tableOf[*policy.Policies] }

var policyRows = policies{tableOf[*policy.Policies]{Policies}}

func (t policies) follow(from, to *PushContext) {
	eachObject(from, to, authorizationPolicyPath, func(c pmap.Change[*config.Config]) {
		object := c.New
		if object == nil {
			object = c.Old
		}
		row := t.rowsOf(to).Value(object.Namespace).Replace(c.Old, c.New)
		t.put(to, object.Namespace, row, row != nil)
	})
}

// OwnPolicies returns the policies that are for the workload: those of the root namespace, then
// those of its own, each from the oldest. Only a workload's own resources may ask.
//
// Two workloads of a namespace that the same policies select answer alike, so they share what is
// built from these.
func (v *View) OwnPolicies() []*config.Config {
	for _, namespace := range v.policyNamespaces() {
		v.ask(Policies, namespace, "")
	}
	v.ask(Self, selfPolicies, "")
	return v.ownPolicies()
}

// policyNamespaces returns the namespaces whose policies may be for the workload.
func (v *View) policyNamespaces() []string {
	root := v.RootNamespace()
	if v.class.Namespace == root {
		return []string{root}
	}
	return []string{root, v.class.Namespace}
}

// RootNamespace is the root namespace of the mesh. It does not record: all is built again if
// another becomes it.
func (v *View) RootNamespace() string { return v.push.mesh.GetRootNamespace() }

func (v *View) ownPolicies() []*config.Config {
	if v.workload == nil {
		return nil
	}
	w := v.push.policyWorkload(v.workload)
	var out []*config.Config
	for _, namespace := range v.policyNamespaces() {
		for p := range v.push.policiesIn(namespace) {
			if p.Selects(w, v.RootNamespace()) {
				out = append(out, p.Config)
			}
		}
	}
	return out
}

// SelectedPolicies names the AuthorizationPolicies that are for a workload, as NAMESPACE/NAME, a
// line each.
type SelectedPolicies string

// Each calls do with the keys of the policies.
func (s SelectedPolicies) Each(do func(config.Key)) {
	for line := range strings.Lines(string(s)) {
		namespace, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "/")
		do(config.Key{Kind: schema.AuthorizationPolicy, Namespace: namespace, Name: name})
	}
}

func (v *View) selectedPolicies() SelectedPolicies {
	var out strings.Builder
	for _, c := range v.ownPolicies() {
		out.WriteString(c.Namespace + "/" + c.Name + "\n")
	}
	return SelectedPolicies(out.String())
}

func (p *PushContext) policyWorkload(proxy *discovery.Proxy) policy.Workload {
	return policy.Workload{Namespace: proxy.Namespace, Labels: p.placeOf(proxy).Labels, Gateway: proxy.Type == discovery.Router}
}

// policiesIn iterates over the policies of a namespace, the oldest first.
func (p *PushContext) policiesIn(namespace string) iter.Seq[*policy.Policy] {
	return policyRows.rowsOf(p).Value(namespace).All()
}

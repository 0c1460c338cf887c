package schema_test

import (
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/storage/access"
	"github.com/portolan-mesh/portolan/storage/claim"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// TestRulesOfAccess: the faults of users, roles and bindings.
func TestRulesOfAccess(t *testing.T) {
	t.Parallel()
	rule := func(verbs, kinds []string) *access.Role {
		return &access.Role{Rules: []access.Rule{{Verbs: verbs, Kinds: kinds}}}
	}
	hosts := func(kind string, verb string, hosts ...string) *access.Role {
		return &access.Role{Rules: []access.Rule{{Verbs: []string{verb}, Kinds: []string{kind}, Hosts: hosts}}}
	}
	grant := func(kind, namespace string, hosts ...string) *claim.HostGrant {
		return &claim.HostGrant{From: []claim.From{{Kind: kind, Namespace: namespace}}, To: []claim.To{{Hosts: hosts}}}
	}
	for name, c := range map[string]struct {
		kind config.GroupVersionKind
		name string
		spec any
		want string // in the faults; empty for none
	}{
		"a user":                    {schema.User, "alice", &access.User{Groups: []string{"operators"}}, ""},
		"the local user":            {schema.User, "local", &access.User{}, "metadata.name: is \"local\""},
		"a group twice":             {schema.User, "alice", &access.User{Groups: []string{"a", "a"}}, "spec.groups[1]"},
		"an empty group":            {schema.User, "alice", &access.User{Groups: []string{""}}, "spec.groups[0]: is missing"},
		"a group that is given":     {schema.User, "alice", &access.User{Groups: []string{"workloads"}}, "spec.groups[0]: is \"workloads\""},
		"a token without id":        {schema.User, "alice", &access.User{Tokens: []access.Token{{Note: "x"}}}, "spec.tokens[0].id: is missing"},
		"a role":                    {schema.Role, "releaser", rule([]string{"get", "*"}, []string{"virtualservices"}), ""},
		"a built-in role":           {schema.Role, "admin", rule([]string{"get"}, []string{"*"}), "metadata.name: is \"admin\""},
		"no verbs":                  {schema.Role, "releaser", rule(nil, []string{"*"}), "spec.rules[0].verbs: is missing"},
		"no kinds":                  {schema.Role, "releaser", rule([]string{"get"}, nil), "spec.rules[0].kinds: is missing"},
		"an unknown verb":           {schema.Role, "releaser", rule([]string{"patch"}, []string{"*"}), "spec.rules[0].verbs[0]: must be one of get"},
		"a binding":                 {schema.RoleBinding, "b", &access.RoleBinding{Role: "viewer", Subjects: []access.Subject{{Kind: "User", Name: "spiffe://a/ns/b/sa/c"}}}, ""},
		"a binding without a role":  {schema.RoleBinding, "b", &access.RoleBinding{Subjects: []access.Subject{{Kind: "User", Name: "a"}}}, "spec.role: is missing"},
		"a subject of another kind": {schema.RoleBinding, "b", &access.RoleBinding{Role: "viewer", Subjects: []access.Subject{{Kind: "ServiceAccount", Name: "a"}}}, "spec.subjects[0].kind: must be one of User, Group"},
		"a rule with hosts":         {schema.Role, "r", hosts("vs", "update", "a.example", "*.shop.example", "*"), ""},
		"hosts for reading":         {schema.Role, "r", hosts("vs", "get", "a.example"), "spec.rules[0].verbs[0]: is \"get\", and a rule with hosts is for create, update, delete"},
		"hosts for every verb":      {schema.Role, "r", hosts("vs", "*", "a.example"), "spec.rules[0].verbs[0]"},
		"hosts of no kind":          {schema.Role, "r", hosts("sidecars", "update", "a.example"), "spec.rules[0].kinds[0]: is \"sidecars\", and a rule with hosts is for the kinds that speak for hosts: destinationrules"},
		"hosts of every kind":       {schema.Role, "r", hosts("*", "update", "a.example"), "spec.rules[0].kinds[0]"},
		"a wrong host":              {schema.Role, "r", hosts("vs", "update", "a*.example"), "spec.rules[0].hosts[0]: \"a*.example\" is not a host name"},
		"a short host":              {schema.Role, "r", hosts("vs", "update", "reviews"), "spec.rules[0].hosts[0]: \"reviews\" is a short name"},
		"a host in capitals":        {schema.Role, "r", hosts("vs", "update", "A.example"), "write a.example"},
		"a grant":                   {schema.HostGrant, "g", grant("VirtualService", "shop", "*.b.example", "*"), ""},
		"a grant of no kind":        {schema.HostGrant, "g", grant("Sidecar", "shop", "b.example"), "spec.from[0].kind: must be one of VirtualService, DestinationRule, ServiceEntry, Gateway, Ingress"},
		"a grant to no namespace":   {schema.HostGrant, "g", grant("Gateway", "", "b.example"), "spec.from[0].namespace: is missing"},
		"a grant of no hosts":       {schema.HostGrant, "g", grant("Gateway", "shop"), "spec.to[0].hosts: is missing"},
		"a grant of a short host":   {schema.HostGrant, "g", grant("Gateway", "shop", "b"), "spec.to[0].hosts[0]: \"b\" is a short name"},
		"an empty grant":            {schema.HostGrant, "g", &claim.HostGrant{}, "spec.to: is missing"},
		"a subject of no kind":      {schema.RoleBinding, "b", &access.RoleBinding{Role: "viewer", Subjects: []access.Subject{{Name: "a"}}}, "spec.subjects[0].kind: is missing"},
	} {
		object := &config.Config{Meta: config.Meta{GroupVersionKind: c.kind, Namespace: "istio-system", Name: c.name}, Spec: c.spec}
		_, err := schema.Pilot().Kind(c.kind).Validate(object)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
	stored := &access.User{Tokens: []access.Token{{ID: "a", Hash: access.HashOf("t")}}}
	if err := stored.CheckStored(); err != nil {
		t.Error(err)
	}
	shown := config.Shown(&config.Config{Spec: stored}).Spec.(*access.User)
	if len(shown.Tokens) != 1 || shown.Tokens[0].ID != "a" || shown.Tokens[0].Hash != nil || len(stored.Tokens[0].Hash) != 32 {
		t.Errorf("shown is %+v of %+v", shown, stored)
	}
	if err := shown.CheckStored(); err == nil {
		t.Error("a token without a hash may be stored")
	}
}

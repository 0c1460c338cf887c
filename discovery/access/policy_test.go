package access

import (
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/storage/access"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// FuzzPolicy: a Role permits only what its rule names, only to subjects that it is bound to,
// and only in its namespace.
func FuzzPolicy(f *testing.F) {
	f.Add("shop", "anna", "get", "virtualservices", "", "", "get", "virtualservices", "shop", "reviews")
	f.Add("istio-system", "anna", "*", "*", "shop", "", "delete", "users", "bank", "")
	f.Add("shop", "peter", "*", "VirtualService", "shop", "reviews", "update", "virtualservices/status", "shop", "reviews")
	f.Add("", "*", "", "", "*", "*", "", "", "", "")
	f.Add("", "anna", "get", "virtualservices", "", "", "get", "virtualservices", "shop", "reviews")
	const root = "istio-system"
	schemas := schema.Pilot()
	f.Fuzz(func(t *testing.T, roleNamespace, subject, verb, kind, namespace, name, wantVerb, wantKind, wantNamespace, wantName string) {
		rule := access.Rule{Verbs: []string{verb}, Kinds: []string{kind}}
		if namespace != "" {
			rule.Namespaces = []string{namespace}
		}
		if name != "" {
			rule.Names = []string{name}
		}
		all := objects{}
		for _, object := range []*config.Config{
			{Meta: config.Meta{GroupVersionKind: schema.Role, Namespace: roleNamespace, Name: "some"}, Spec: &access.Role{Rules: []access.Rule{rule}}},
			{Meta: config.Meta{GroupVersionKind: schema.RoleBinding, Namespace: roleNamespace, Name: "some"}, Spec: &access.RoleBinding{Role: "some", Subjects: []access.Subject{{Kind: access.SubjectUser, Name: subject}}}},
		} {
			all[object.Key()] = object
		}
		p := newPolicy(all, root, schemas)
		if !p.permits(Identity{User: "anna"}, action{verb: wantVerb, kind: wantKind, namespace: wantNamespace, name: wantName}) {
			return
		}
		whole, _, _ := strings.Cut(wantKind, "/")
		named := plural(kind, schemas)
		switch {
		case subject != "anna":
			t.Errorf("it is bound to %q alone", subject)
		case verb != access.All && verb != wantVerb:
			t.Errorf("the verb %q permits %q", verb, wantVerb)
		case named != access.All && named != wantKind && named != whole:
			t.Errorf("the kind %q permits %q", kind, wantKind)
		case roleNamespace != root && roleNamespace != wantNamespace:
			t.Errorf("a role of %q permits something in %q", roleNamespace, wantNamespace)
		case namespace != "" && namespace != wantNamespace:
			t.Errorf("a rule for %q permits something in %q", namespace, wantNamespace)
		case name != "" && name != wantName:
			t.Errorf("a rule for %q permits %q", name, wantName)
		}
	})
}

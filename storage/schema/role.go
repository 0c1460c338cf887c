package schema

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/portolan-mesh/portolan/storage/access"
	"github.com/portolan-mesh/portolan/storage/claim"
	"github.com/portolan-mesh/portolan/storage/config"
)

func roleKind() *Schema {
	s := definition[*access.Role]{
		kind: Role, plural: "roles",
		codec:  config.JSON[access.Role](),
		served: serve("rules"),
		check:  checkRole,
	}.schema()
	s.Internal = true
	return s
}

func checkRole(c checker, s *access.Role) {
	if name := c.report.object.Name; slices.Contains(access.BuiltIn(), name) {
		c.report.at("metadata").at("name").fail("is %q, which is a built-in role: take another name", name)
	}
	if len(s.Rules) == 0 {
		c.at("rules").warn("is empty: the role permits nothing")
	}
	each(c.at("rules"), s.Rules, func(c checker, r access.Rule) {
		if len(r.Verbs) == 0 {
			c.at("verbs").fail("is missing: name verbs, or %q for all", access.All)
		}
		each(c.at("verbs"), r.Verbs, func(c checker, verb string) {
			c.required(verb)
			c.oneOf(verb, append(access.Verbs(), access.All)...)
		})
		if len(r.Kinds) == 0 {
			c.at("kinds").fail("is missing: name kinds, such as virtualservices, or %q for all", access.All)
		}
		each(c.at("kinds"), r.Kinds, checker.principal)
		each(c.at("namespaces"), r.Namespaces, func(c checker, namespace string) {
			c.syntax(namespace, validation.IsDNS1123Label)
		})
		each(c.at("names"), r.Names, func(c checker, name string) { c.syntax(name, validation.IsDNS1123Subdomain) })
		checkRuleHosts(c, r)
	})
}

// checkRuleHosts refuses hosts on a rule that permits something which has none.
func checkRuleHosts(c checker, r access.Rule) {
	if len(r.Hosts) == 0 {
		return
	}
	each(c.at("hosts"), r.Hosts, checker.wholeHost)
	each(c.at("verbs"), r.Verbs, func(c checker, verb string) {
		if !slices.Contains(access.WritingVerbs(), verb) {
			c.fail("is %q, and a rule with hosts is for %s: put other verbs into another rule", verb, strings.Join(access.WritingVerbs(), ", "))
		}
	})
	each(c.at("kinds"), r.Kinds, func(c checker, kind string) {
		if k := Pilot().Named(kind); k == nil || !claim.Speaks(k.Plural) {
			c.fail("is %q, and a rule with hosts is for the kinds that speak for hosts: %s", kind, strings.Join(claim.Kinds(), ", "))
		}
	})
}

func roleBinding() *Schema {
	s := definition[*access.RoleBinding]{
		kind: RoleBinding, plural: "rolebindings",
		codec:  config.JSON[access.RoleBinding](),
		served: serve("role", "subjects"),
		check:  checkRoleBinding,
	}.schema()
	s.Internal = true
	return s
}

func checkRoleBinding(c checker, s *access.RoleBinding) {
	c.at("role").required(s.Role)
	if len(s.Subjects) == 0 {
		c.at("subjects").warn("is empty: nobody has the role by it")
	}
	each(c.at("subjects"), s.Subjects, func(c checker, subject access.Subject) {
		c.at("kind").required(subject.Kind)
		c.at("kind").oneOf(subject.Kind, access.SubjectUser, access.SubjectGroup)
		c.at("name").principal(subject.Name)
	})
	unique(c.at("subjects"), s.Subjects, func(subject access.Subject) access.Subject { return subject })
}

package policy

import (
	"fmt"
	"strings"

	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	security "istio.io/api/security/v1beta1"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/xds/envoy/rbac"
)

// Part is one field of a rule of an AuthorizationPolicy.
type Part struct {
	// Field is its path in the rule, such as from[0].source.principals, and Values what it has.
	Field  string
	Values []string
	// Key is the key of a condition, empty for other fields.
	Key string
	// Matches is what the field alone matches, nil if nothing: a connection has no such thing.
	Matches *rbacv3.Policy
}

// Parts splits a rule of an ALLOW policy that HTTP or, for tcp, Network translates. The rule matches
// if each element of the result does. An element matches if all parts of one of its lists do.
func Parts(c *config.Config, rule *security.Rule, tcp bool, o Options) [][][]Part {
	t := translation{requests, rbacv3.RBAC_ALLOW, o.TrustDomains}
	if tcp {
		t.platform = connections
	}
	var from, to [][]Part
	for i, f := range rule.GetFrom() {
		from = append(from, partsOf(t, principalSide, asPrincipals, fmt.Sprintf("from[%d].source.", i), source(f.GetSource(), c.Namespace, o.TrustDomains)))
	}
	for i, f := range rule.GetTo() {
		to = append(to, partsOf(t, permissionSide, asPermissions, fmt.Sprintf("to[%d].operation.", i), operation(f.GetOperation())))
	}
	var when []Part
	for i, w := range rule.GetWhen() {
		of, who, _ := conditions([]*security.Condition{w}, c.Namespace, o.TrustDomains)
		at := fmt.Sprintf("when[%d].", i)
		for _, p := range append(partsOf(t, permissionSide, asPermissions, at, of), partsOf(t, principalSide, asPrincipals, at, who)...) {
			p.Key = w.GetKey()
			when = append(when, p)
		}
	}
	var out [][][]Part
	for _, one := range [][][]Part{from, to, {when}} {
		if len(one) > 0 {
			out = append(out, one)
		}
	}
	return out
}

func asPermissions(p *rbac.Permission) *rbacv3.Policy {
	return rbac.Policy([]*rbac.Permission{p}, []*rbac.Principal{rbac.PrincipalAny()})
}

func asPrincipals(p *rbac.Principal) *rbacv3.Policy {
	return rbac.Policy([]*rbac.Permission{rbac.PermissionAny()}, []*rbac.Principal{p})
}

// partsOf returns a part for values and for notValues of each clause that has any.
func partsOf[T any](t translation, s side[T], as func(T) *rbacv3.Policy, at string, clauses []clause[T]) []Part {
	var out []Part
	for _, c := range clauses {
		values, notValues := c, c
		values.notValues, notValues.values = nil, nil
		field, notField := c.field, "not"
		if field == "" {
			field, notField = "values", "notValues"
		} else {
			notField += strings.ToUpper(field[:1]) + field[1:]
		}
		for _, one := range []struct {
			field  string
			values []string
			clause clause[T]
		}{{field, c.values, values}, {notField, c.notValues, notValues}} {
			if len(one.values) == 0 {
				continue
			}
			part := Part{Field: at + one.field, Values: one.values}
			if m, ok := s.all(t, []clause[T]{one.clause}); ok {
				part.Matches = as(m)
			}
			out = append(out, part)
		}
	}
	return out
}

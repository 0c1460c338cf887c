package policy

import (
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	security "istio.io/api/security/v1beta1"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/xds/envoy/rbac"
	"github.com/portolan-mesh/portolan/xds/names"
)

// platform is what judges: it knows some attributes and not others.
type platform int

const (
	requests    platform = iota // an Envoy, HTTP requests
	connections                 // an Envoy, TCP connections
	calls                       // a gRPC server
	anonymous                   // an Envoy, HTTP requests of callers without a certificate
)

// translation is how rules of one filter are translated.
type translation struct {
	platform platform
	action   rbacv3.RBAC_Action
	domains  []string
}

// rules translates policies, nil for none.
func (t translation) rules(policies []*config.Config) *rbacv3.RBAC {
	return t.named(policies, func(_ *config.Config, r names.PolicyRule) string { return r.Key() })
}

// named translates policies, nil for none, and names their rules.
func (t translation) named(policies []*config.Config, key func(*config.Config, names.PolicyRule) string) *rbacv3.RBAC {
	if len(policies) == 0 {
		return nil
	}
	out := &rbacv3.RBAC{Action: t.action, Policies: map[string]*rbacv3.Policy{}}
	for _, c := range policies {
		at := names.PolicyRule{Namespace: c.Namespace, Name: c.Name}
		rules := specOf(c).GetRules()
		if len(rules) == 0 {
			out.Policies[key(c, at)] = rbac.Never()
		}
		for i, rule := range rules {
			if at.Rule = i; rule == nil {
				continue
			}
			if p := t.rule(rule, c.Namespace); p != nil {
				out.Policies[key(c, at)] = p
			}
		}
	}
	return out
}

// rule translates a rule of a policy of a namespace. It is nil if the rule can match nothing.
func (t translation) rule(rule *security.Rule, namespace string) *rbacv3.Policy {
	ofOperation, ofSource, ok := conditions(rule.GetWhen(), namespace, t.domains)
	if !ok && t.action == rbacv3.RBAC_ALLOW {
		return nil
	}
	var permissions []*rbac.Permission
	for _, to := range orOne(rule.GetTo()) {
		p, ok := permissionSide.all(t, append(operation(to.GetOperation()), ofOperation...))
		if !ok {
			return nil
		}
		permissions = append(permissions, p)
	}
	var principals []*rbac.Principal
	for _, from := range orOne(rule.GetFrom()) {
		p, ok := principalSide.all(t, append(source(from.GetSource(), namespace, t.domains), ofSource...))
		if !ok {
			return nil
		}
		principals = append(principals, p)
	}
	return rbac.Policy(permissions, principals)
}

// orOne returns a list, or one that has a zero element: no source is any source.
func orOne[T any](list []T) []T {
	if len(list) == 0 {
		return make([]T, 1)
	}
	return list
}

// clause is a field of a source or an operation, or a condition: one of values must match, if
// there are any, and none of notValues.
type clause[T any] struct {
	// field is the name of values in the API; that of a condition is empty.
	field             string
	values, notValues []string
	// on says who knows the attribute. Some know it for some values only.
	on func(platform, string) bool
	// match translates a value; false if it is none.
	match func(value string) (T, bool)
}

// everywhere is for attributes that all platforms know.
func everywhere(platform, string) bool { return true }

// ofIdentities is for attributes that the certificate of the caller proves.
func ofIdentities(p platform, _ string) bool { return p != anonymous }

// ofRequests is for attributes that an Envoy knows of requests.
func ofRequests(p platform, _ string) bool { return p == requests || p == anonymous }

// ofMessages is for attributes of requests and calls.
func ofMessages(p platform, _ string) bool { return p != connections }

// ofEnvoy is for attributes that an Envoy knows.
func ofEnvoy(p platform, _ string) bool { return p != calls }

// side joins matchers: permissions or principals.
type side[T any] struct {
	any     func() T
	and, or func([]T) T
	not     func(T) T
}

var (
	permissionSide = side[*rbac.Permission]{rbac.PermissionAny, rbac.PermissionAnd, rbac.PermissionOr, rbac.PermissionNot}
	principalSide  = side[*rbac.Principal]{rbac.PrincipalAny, rbac.PrincipalAnd, rbac.PrincipalOr, rbac.PrincipalNot}
)

// all joins clauses that must all match. A clause that the platform cannot judge is left out,
// or, for ALLOW, the answer is false: nothing matches.
func (s side[T]) all(t translation, clauses []clause[T]) (T, bool) {
	var and []T
	for _, c := range clauses {
		matched, ok := s.either(t, c, c.values)
		refused, okNot := s.either(t, c, c.notValues)
		if (!ok || !okNot) && t.action == rbacv3.RBAC_ALLOW {
			var none T
			return none, false
		}
		if ok && len(matched) > 0 {
			and = append(and, s.or(matched))
		}
		if okNot && len(refused) > 0 {
			and = append(and, s.not(s.or(refused)))
		}
	}
	if len(and) == 0 {
		and = append(and, s.any())
	}
	return s.and(and), true
}

// either translates values. It is false if the platform cannot judge one of them.
func (s side[T]) either(t translation, c clause[T], values []string) ([]T, bool) {
	out := make([]T, 0, len(values))
	for _, value := range values {
		m, ok := c.match(value)
		if !ok || !c.on(t.platform, value) {
			return nil, false
		}
		out = append(out, m)
	}
	return out, true
}

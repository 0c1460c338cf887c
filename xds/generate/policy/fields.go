package policy

import (
	"fmt"
	"slices"
	"strings"

	security "istio.io/api/security/v1beta1"

	"github.com/portolan-mesh/portolan/xds/envoy/rbac"
)

// NotForTCP returns the fields of a policy that TCP connections do not have, such as
// spec.rules[0].to[0].operation.paths.
func NotForTCP(spec *security.AuthorizationPolicy) []string { return unknown(spec, connections) }

// NotForGRPC returns the fields of a policy that a gRPC server cannot judge.
func NotForGRPC(spec *security.AuthorizationPolicy) []string { return unknown(spec, calls) }

// IdentityFields returns the fields of a policy that name what the certificate of a caller proves. A
// caller in plaintext has no such thing: values do not match it, notValues do.
func IdentityFields(spec *security.AuthorizationPolicy) []string { return unknown(spec, anonymous) }

func unknown(spec *security.AuthorizationPolicy, p platform) []string {
	var out []string
	for i, rule := range spec.GetRules() {
		at := fmt.Sprintf("spec.rules[%d].", i)
		for j, from := range rule.GetFrom() {
			for _, c := range source(from.GetSource(), "", nil) {
				out = append(out, c.unknown(p, fmt.Sprintf("%sfrom[%d].source.", at, j))...)
			}
		}
		for j, to := range rule.GetTo() {
			for _, c := range operation(to.GetOperation()) {
				out = append(out, c.unknown(p, fmt.Sprintf("%sto[%d].operation.", at, j))...)
			}
		}
		for j, when := range rule.GetWhen() {
			of, from, _ := conditions([]*security.Condition{when}, "", nil)
			if slices.ContainsFunc(of, hiddenFrom[*rbac.Permission](p)) || slices.ContainsFunc(from, hiddenFrom[*rbac.Principal](p)) {
				out = append(out, fmt.Sprintf("%swhen[%d].key", at, j))
			}
		}
	}
	return out
}

// hiddenFrom says whether a platform cannot judge a clause.
func hiddenFrom[T any](p platform) func(clause[T]) bool {
	return func(c clause[T]) bool { return c.hidden(p, c.values) || c.hidden(p, c.notValues) }
}

// unknown returns the fields of a clause that a platform cannot judge.
func (c clause[T]) unknown(p platform, at string) []string {
	var out []string
	if c.hidden(p, c.values) {
		out = append(out, at+c.field)
	}
	if c.hidden(p, c.notValues) {
		out = append(out, at+"not"+strings.ToUpper(c.field[:1])+c.field[1:])
	}
	return out
}

func (c clause[T]) hidden(p platform, values []string) bool {
	return slices.ContainsFunc(values, func(value string) bool { return !c.on(p, value) })
}

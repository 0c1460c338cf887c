// Package policy translates AuthorizationPolicies into RBAC filters.
//
//	config := policy.HTTP(policies, security.AuthorizationPolicy_DENY, options)
//
// One filter has all policies of one action that apply to a workload (filter.go). A rule
// becomes one policy of the filter, by the name of its [names.PolicyRule] (rule.go): its
// operations are permissions (operation.go), its sources are principals (source.go), and its
// conditions go with each of either. The matchers are those of Istio's pilot/pkg/security/authz,
// with the differences of docs/decisions/policies-mean-their-text.md:
//
//   - A peer's name is a SPIFFE URI of its certificate, never another name in it.
//   - Text in a namespace, an account or the end of a principal is compared as text: Istio puts
//     it into a regular expression, where "." is any character.
//   - An unknown key or a value that is none skips an ALLOW rule, and leaves its attribute out
//     of others.
//   - Trust domain aliases also expand principals such as "cluster.local/*".
package policy

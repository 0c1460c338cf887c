package names

import (
	"regexp"
	"strconv"
)

// PolicyRule is a rule of an AuthorizationPolicy.
type PolicyRule struct {
	Namespace, Name string
	// Rule is its index.
	Rule int
}

// Key names the rule in RBAC filters, access logs and the details of responses:
// ns[shop]-policy[web]-rule[0]. Istio has the same.
func (r PolicyRule) Key() string {
	return "ns[" + r.Namespace + "]-policy[" + r.Name + "]-rule[" + strconv.Itoa(r.Rule) + "]"
}

// CustomKey names the rule in the filter that selects what a provider of external
// authorization is asked.
func (r PolicyRule) CustomKey(provider string) string { return CustomPrefix + provider + "-" + r.Key() }

// CustomPrefix begins each CustomKey. (Istio: extauthz.go.)
const CustomPrefix = "istio-ext-authz-"

// RefusedSuffix ends a CustomKey of a rule whose provider cannot be asked, in the filter that refuses
// what the rule matches. (Istio: badCustomActionSuffix.)
const RefusedSuffix = "-deny-due-to-bad-CUSTOM-action"

// ruleKey finds the rule in a key. The names of namespaces and objects have no brackets.
var ruleKey = regexp.MustCompile(`^(?:istio-ext-authz-.+-)?ns\[([^\[\]]*)\]-policy\[([^\[\]]*)\]-rule\[([0-9]+)\](?:` + RefusedSuffix + `)?$`)

// ParsePolicyRule is the inverse of Key and CustomKey, whose RefusedSuffix it ignores; false for other texts.
func ParsePolicyRule(key string) (PolicyRule, bool) {
	parts := ruleKey.FindStringSubmatch(key)
	if parts == nil {
		return PolicyRule{}, false
	}
	rule, err := strconv.Atoi(parts[3])
	return PolicyRule{Namespace: parts[1], Name: parts[2], Rule: rule}, err == nil
}

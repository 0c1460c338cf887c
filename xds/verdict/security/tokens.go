package security

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	security "istio.io/api/security/v1beta1"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/generate/policy"
	selecting "github.com/portolan-mesh/portolan/xds/mesh/policy"
	"github.com/portolan-mesh/portolan/xds/verdict"
)

// tokens tells of selected workloads that verify no tokens, though the policy names what tokens say,
// and of issuers whose tokens none of them takes.
func (j *policyJudge) tokens() {
	first := ""
	for f := range tokenFields(j.spec) {
		first = f.path
		break
	}
	if first == "" {
		return
	}
	issuers, without := j.issuers()
	if without.Count() > 0 {
		j.add(verdict.TokensUnknown, first, "apply a RequestAuthentication for them, or narrow the policy to workloads that have one",
			"is about tokens, and no RequestAuthentication is for %s. Without one no token is verified: values match no request, notValues match every one", without)
	}
	if len(issuers) == 0 {
		return
	}
	var taken verdict.Names
	for _, issuer := range issuers {
		taken.Add(issuer)
	}
	for f := range tokenFields(j.spec) {
		for i, value := range f.values {
			if issuer, ok := f.issuer(value); ok && !slices.Contains(issuers, issuer) {
				j.add(verdict.IssuerUnknown, verdict.At(f.path, i), "mend the issuer, or add it to jwtRules of a RequestAuthentication for these workloads",
					"is of issuer %q, and the workloads of the policy take tokens of others alone: %s. The value matches no request", issuer, &taken)
			}
		}
	}
}

// issuers returns, in order, the issuers whose tokens selected workloads take, and the workloads that
// take none. What gRPC servers cannot judge is told otherwise.
func (j *policyJudge) issuers() (issuers []string, without *verdict.Names) {
	var all []*selecting.Policy
	for _, namespace := range j.namespaces() {
		for o := range j.Objects(schema.RequestAuthentication, namespace) {
			all = append(all, selecting.NewPolicy(o))
		}
	}
	without = &verdict.Names{}
	for _, p := range j.selected {
		if p.Type == discovery.Proxyless {
			continue
		}
		var own []*config.Config
		for _, one := range all {
			if one.Selects(p.workload, j.root) {
				own = append(own, one.Config)
			}
		}
		rules := selecting.TokenRules(own)
		if len(rules) == 0 {
			without.Add(p.ID)
		}
		for _, r := range rules {
			issuers = append(issuers, r.GetIssuer())
		}
	}
	slices.Sort(issuers)
	return slices.Compact(issuers), without
}

// tokenField is a list of values about tokens.
type tokenField struct {
	path   string
	values []string
	// issuer returns the issuer that a value names alone.
	issuer func(string) (string, bool)
}

// tokenFields iterates over the fields of a policy about tokens.
func tokenFields(spec *security.AuthorizationPolicy) iter.Seq[tokenField] {
	return func(yield func(tokenField) bool) {
		one := func(path string, values []string, issuer func(string) (string, bool)) bool {
			return len(values) == 0 || yield(tokenField{path, values, issuer})
		}
		for i, rule := range spec.GetRules() {
			for k, from := range rule.GetFrom() {
				s, at := from.GetSource(), fmt.Sprintf("spec.rules[%d].from[%d].source.", i, k)
				if !one(at+"requestPrincipals", s.GetRequestPrincipals(), policy.Issuer) || !one(at+"notRequestPrincipals", s.GetNotRequestPrincipals(), policy.Issuer) {
					return
				}
			}
			for k, when := range rule.GetWhen() {
				at := fmt.Sprintf("spec.rules[%d].when[%d].", i, k)
				issuer, ok := issuerOf(when.GetKey())
				if ok && (!one(at+"values", when.GetValues(), issuer) || !one(at+"notValues", when.GetNotValues(), issuer)) {
					return
				}
			}
		}
	}
}

// issuerOf returns how the values of a condition name an issuer; false if it is not about tokens.
func issuerOf(key string) (func(string) (string, bool), bool) {
	switch attribute, names, _ := schema.ParseCondition(key); {
	case attribute == schema.RequestPrincipal:
		return policy.Issuer, true
	case attribute == schema.RequestClaim && slices.Equal(names, []string{"iss"}):
		return func(value string) (string, bool) {
			return value, !strings.HasPrefix(value, "*") && !strings.HasSuffix(value, "*")
		}, true
	case attribute == schema.RequestClaim || attribute == schema.RequestAudiences || attribute == schema.RequestPresenter:
		return func(string) (string, bool) { return "", false }, true
	}
	return nil, false
}

package explain

import (
	"fmt"
	"slices"
	"strings"

	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	security "istio.io/api/security/v1beta1"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/mesh/origins"
	"github.com/portolan-mesh/portolan/xds/names"
	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/simulate"
)

// refusal says which policy of a proxy refuses a request, and why; empty if none does. built
// has the filters of the proxy.
func (e *explainer) refusal(result simulate.Result, built []generate.Built) string {
	if t := result.Token; t != nil {
		by := e.authentications(policiesIn(built, t.Filter), t.Issuer)
		return fmt.Sprintf("the token is refused with %d (%s), by %s", result.Status, t.Reason, strings.Join(by, ", "))
	}
	d, refused := result.Refused()
	if !refused {
		return ""
	}
	if rule, ok := d.Rule(); ok {
		key := config.Key{Kind: schema.AuthorizationPolicy, Namespace: rule.Namespace, Name: rule.Name}
		if strings.HasSuffix(d.Policy, names.RefusedSuffix) {
			return fmt.Sprintf("spec.rules[%d] of %s matches it, and its provider cannot be asked", rule.Rule, key)
		}
		return fmt.Sprintf("spec.rules[%d] of %s denies it", rule.Rule, key)
	}
	var by []string
	for _, key := range policiesIn(built, d.Filter) {
		c := e.push.Inputs().Configs.Configs().Value(key.Path())
		if c != nil && c.Spec.(*security.AuthorizationPolicy).GetAction() == security.AuthorizationPolicy_ALLOW {
			by = append(by, key.String())
		}
	}
	if d.Action != rbacv3.RBAC_ALLOW || len(by) == 0 {
		return "the filter " + d.Filter + " of the proxy refuses it"
	}
	return "no rule of " + strings.Join(by, ", ") + " allows it"
}

// asked says which policy has an external authorizer asked about the request; empty for none.
func asked(result simulate.Result) string {
	if result.Asked == nil {
		return ""
	}
	by := "the filter " + result.Asked.Filter + " of the proxy"
	if rule, ok := names.ParsePolicyRule(result.Asked.Policy); ok {
		by = fmt.Sprintf("spec.rules[%d] of %s", rule.Rule, config.Key{Kind: schema.AuthorizationPolicy, Namespace: rule.Namespace, Name: rule.Name})
	}
	return by + " asks " + result.Asked.Cluster + " first, which may refuse it"
}

// policiesIn returns the policies in a filter.
func policiesIn(built []generate.Built, filter string) []config.Key {
	for _, b := range built {
		if b.Name == filter && b.Body.GetTypeUrl() == resource.ExtensionType {
			return origins.Of(b.Reads)
		}
	}
	return nil
}

// authentications returns the RequestAuthentications among keys that have a rule for an issuer;
// all of them if the issuer is empty.
func (e *explainer) authentications(keys []config.Key, issuer string) []string {
	var out []string
	for _, key := range keys {
		c := e.push.Inputs().Configs.Configs().Value(key.Path())
		if key.Kind != schema.RequestAuthentication || c == nil {
			continue
		}
		if rules := c.Spec.(*security.RequestAuthentication).GetJwtRules(); issuer == "" || slices.ContainsFunc(rules, func(r *security.JWTRule) bool { return r.GetIssuer() == issuer }) {
			out = append(out, key.String())
		}
	}
	return out
}

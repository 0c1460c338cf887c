package explain

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	security "istio.io/api/security/v1beta1"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/generate/policy"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/origins"
	"github.com/portolan-mesh/portolan/xds/names"
	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/simulate"
)

// The decisions of policies.
const (
	Allowed = "Allowed"
	Refused = "Refused"
	Asked   = "Asked" // an external authorizer decides, as a CUSTOM policy says
)

// Access is what the policies of a proxy say about a request or a connection.
type Access struct {
	// Decision is one of the constants above, or Unknown: it depends on the identity of the caller,
	// which is not known.
	Decision string `json:"decision"`
	// By is the rule that decides; absent if none matches.
	By *PolicyRule `json:"by,omitempty"`
	// Provider is the name of the authorizer that is Asked, empty for none.
	Provider string `json:"provider,omitempty"`
	// Unmatched are the ALLOW policies that are for the workload, if none of their rules matches.
	Unmatched []string `json:"unmatched,omitempty"`
	// Misses say where the rules of the Unmatched policies do not match, in order.
	Misses []Miss `json:"misses,omitempty"`
	// Unproved says why the caller does not prove its identity there, if a policy of the workload
	// asks for one; empty if it does, or has none.
	Unproved string `json:"unproved,omitempty"`
	// Policies counts the AuthorizationPolicies that are for the workload, with those of a dry run.
	Policies int `json:"policies"`
	// Audited is the rule of an AUDIT policy that matches.
	Audited *PolicyRule `json:"audited,omitempty"`
	// DryRuns are the policies of a dry run that would say otherwise.
	DryRuns []DryRun `json:"dryRuns,omitempty"`
	// Weakened are the patches of EnvoyFilters by which the proxy may not judge as the Policies say, such
	// as "envoyfilter/shop/open: spec.configPatches[0].match removes the filter envoy.filters.http.rbac".
	Weakened []string `json:"weakened,omitempty"`
	// Status is that of a refusal, 0 for a closed connection. Details are the response code
	// details that the access log of the proxy has with it.
	Status  int    `json:"status,omitempty"`
	Details string `json:"details,omitempty"`
	// Reason says the decision in words.
	Reason string `json:"reason"`
}

// PolicyRule is a rule of an AuthorizationPolicy, as "spec.rules[0]" of
// "authorizationpolicy/shop/web".
type PolicyRule struct {
	Action string `json:"action"`
	Policy string `json:"policy"`
	Field  string `json:"field"`
}

// String returns the field and the policy.
func (r PolicyRule) String() string { return r.Field + " of " + r.Policy }

// DryRun is what would differ if policies of a dry run were enforced. The Decision is Unknown if that
// depends on what is not known of the caller.
type DryRun struct {
	Decision string `json:"decision"`
	// By is the rule that would decide, or Unmatched are the policies, none of whose rules matches.
	By        *PolicyRule `json:"by,omitempty"`
	Unmatched []string    `json:"unmatched,omitempty"`
}

// malformed says what is wrong with a request that a proxy refuses before it asks any policy; empty
// if nothing is.
func malformed(result simulate.Result) string {
	switch {
	case result.VirtualHost != "":
	case result.Status == http.StatusBadRequest:
		return "the proxy refuses it with 400: the path has a fragment, a NUL, or bytes that HTTP/1.1 does not take"
	case result.Status == http.StatusRequestHeaderFieldsTooLarge:
		return "the proxy refuses it with 431: the headers are larger than it takes"
	}
	return ""
}

// judged reports whether a request came to the policies of a proxy.
func judged(result simulate.Result) bool {
	if malformed(result) != "" {
		return false
	}
	for _, err := range []error{simulate.ErrNoListener, simulate.ErrNoFilterChain, simulate.ErrPlaintext, simulate.ErrEncrypted} {
		if errors.Is(result.Err, err) {
			return false
		}
	}
	return true
}

// accessOf returns what the policies of a proxy say about a request; nil if it does not come to
// them, or the simulation does not know it. built has the filters of that proxy.
func (e *explainer) accessOf(proxy *discovery.Proxy, v *mesh.View, built []generate.Built, result simulate.Result, unproved string) *Access {
	refused, unnamed := result.Token != nil, errors.Is(result.Err, simulate.ErrUnnamed)
	if _, by := result.Refused(); by {
		refused = true
	}
	if !judged(result) || result.Err != nil && !refused && !unnamed && !isUnrouted(result.Err) {
		return nil
	}
	own := policiesOf(v.OwnPolicies())
	out := &Access{Policies: len(own)}
	if slices.ContainsFunc(own, asksIdentity) {
		out.Unproved = unproved
	}
	for _, d := range result.Access {
		if rule := own.rule(d); rule != nil && d.Action == rbacv3.RBAC_LOG && !d.Shadow && !d.Unknown {
			out.Audited = rule
		}
	}
	switch {
	case result.Token != nil:
		out.refuseToken(e.authentications(policiesIn(built, result.Token.Filter), result.Token.Issuer), result)
	case refused:
		out.refuse(own, result)
		if d, _ := result.Refused(); out.By == nil && pluginOf(d.Filter) != "" {
			out.Reason = e.refusals.standIn(proxy, e.push, d.Filter) + ", and its failStrategy refuses everything until then"
		}
		if len(out.Unmatched) > 0 {
			out.Misses = own.misses(result, policy.OptionsOf(v))
		}
	case unnamed:
		out.leaveOpen(own, result, e.proxy)
	default:
		out.allow(own, result)
	}
	out.rehearse(own, result)
	return out
}

// isUnrouted reports whether filters let a request pass that no route is for.
func isUnrouted(err error) bool {
	return errors.Is(err, simulate.ErrNoVirtualHost) || errors.Is(err, simulate.ErrNoRoute)
}

// policiesOf are the AuthorizationPolicies that are for a workload.
type policiesOf []*config.Config

// rule returns the rule that decided, nil for none.
func (own policiesOf) rule(d simulate.Decision) *PolicyRule {
	rule, ok := d.Rule()
	if !ok {
		return nil
	}
	key := config.Key{Kind: schema.AuthorizationPolicy, Namespace: rule.Namespace, Name: rule.Name}
	i := slices.IndexFunc(own, func(c *config.Config) bool { return c.Key() == key })
	if i < 0 {
		return nil
	}
	return &PolicyRule{actionOf(own[i]).String(), key.String(), fmt.Sprintf("spec.rules[%d]", rule.Rule)}
}

// provider returns the name of the provider that the policy of a rule asks.
func (own policiesOf) provider(r *PolicyRule) string {
	i := slices.IndexFunc(own, func(c *config.Config) bool { return c.Key().String() == r.Policy })
	return own[i].Spec.(*security.AuthorizationPolicy).GetProvider().GetName()
}

// whyUnasked says why the provider of a rule is not asked, so that what the rule matches is refused.
func (own policiesOf) whyUnasked(r *PolicyRule) string {
	name := own.provider(r)
	for _, c := range own {
		if other := c.Spec.(*security.AuthorizationPolicy).GetProvider().GetName(); other != name && actionOf(c) == security.AuthorizationPolicy_CUSTOM {
			return fmt.Sprintf("the provider %s, and %s asks %s: a workload can ask one, so what either matches is refused", name, c.Key(), other)
		}
	}
	return fmt.Sprintf("the provider %s, which the mesh configuration does not have, or whose service the proxy does not see: it is refused", name)
}

// allowing returns the ALLOW policies, those of a dry run or the others.
func (own policiesOf) allowing(dry bool) (out []string) {
	for _, c := range own {
		if actionOf(c) == security.AuthorizationPolicy_ALLOW && policy.DryRun(c) == dry {
			out = append(out, c.Key().String())
		}
	}
	slices.Sort(out)
	return out
}

func actionOf(c *config.Config) security.AuthorizationPolicy_Action {
	return c.Spec.(*security.AuthorizationPolicy).GetAction()
}

// refuseToken says why the token of a request is refused, and by whom.
func (a *Access) refuseToken(by []string, result simulate.Result) {
	t := result.Token
	a.Decision, a.Status, a.Details = Refused, result.Status, t.Details()
	a.Reason = fmt.Sprintf("the token is refused with %d (%s), by %s", result.Status, t.Reason, strings.Join(by, ", "))
}

// refuse says which policy refuses a request.
func (a *Access) refuse(own policiesOf, result simulate.Result) {
	d, _ := result.Refused()
	a.Decision, a.Status, a.Details = Refused, result.Status, d.Details()
	a.By = own.rule(d)
	switch {
	case a.By != nil && a.By.Action == security.AuthorizationPolicy_CUSTOM.String():
		a.Reason = a.By.String() + " asks " + own.whyUnasked(a.By)
	case a.By != nil:
		a.Reason = a.By.String() + " denies it"
	case d.Action == rbacv3.RBAC_ALLOW:
		a.Unmatched = own.allowing(false)
		a.Reason = "no rule of " + strings.Join(a.Unmatched, ", ") + " allows it"
	default:
		a.Reason = "the filter " + d.Filter + " of the proxy refuses it"
	}
}

// allow says which rule lets a request pass, or why none has to.
func (a *Access) allow(own policiesOf, result simulate.Result) {
	a.Decision = Allowed
	var asking *PolicyRule
	for _, d := range result.Access {
		switch rule := own.rule(d); {
		case rule == nil:
		case rule.Action == security.AuthorizationPolicy_CUSTOM.String():
			asking = rule
		case d.Action == rbacv3.RBAC_ALLOW && !d.Shadow:
			a.By = rule
		}
	}
	switch {
	case result.Asked && asking != nil:
		a.Decision, a.By, a.Provider = Asked, asking, own.provider(asking)
		a.Reason = fmt.Sprintf("%s has the provider %s decide", asking, a.Provider)
	case a.By != nil:
		a.Reason = a.By.String() + " allows it"
	case a.Policies == 0:
		a.Reason = "no policy is for it"
	default:
		a.Reason = "no policy refuses it, and no ALLOW policy is for it"
	}
}

// leaveOpen says which policy depends on the identity of a caller that is not known.
func (a *Access) leaveOpen(own policiesOf, result simulate.Result, caller *discovery.Proxy) {
	a.Decision = Unknown
	what := "a policy"
	if i := slices.IndexFunc(result.Access, func(d simulate.Decision) bool { return d.Unknown && own.rule(d) != nil }); i >= 0 {
		rule := own.rule(result.Access[i])
		what = own.identityField(rule) + " of " + rule.Policy
	}
	a.Reason = fmt.Sprintf("%s asks for an identity, and that of %s is not known: its certificate is on its machine, and it names no service account. "+
		"Give its bootstrap --service-account, or ask from an identity, such as %s/ns/%s/sa/NAME", what, caller.Name, discovery.DefaultTrustDomain, caller.Namespace)
}

// rehearse finds the policies of a dry run that would say otherwise. What an ALLOW policy would
// say about a request that a filter before refuses is unknown to the proxy.
func (a *Access) rehearse(own policiesOf, result simulate.Result) {
	for _, d := range result.Access {
		rule := own.rule(d)
		switch {
		case !d.Shadow || rule != nil && rule.Action == security.AuthorizationPolicy_CUSTOM.String():
		case d.Unknown:
			a.DryRuns = append(a.DryRuns, DryRun{Decision: Unknown, By: rule})
		case d.Action == rbacv3.RBAC_DENY && rule != nil && a.Decision != Refused:
			a.DryRuns = append(a.DryRuns, DryRun{Decision: Refused, By: rule})
		case d.Action != rbacv3.RBAC_ALLOW:
		case rule != nil && a.Decision == Refused && len(a.Unmatched) > 0:
			a.DryRuns = append(a.DryRuns, DryRun{Decision: Allowed, By: rule})
		case rule == nil && a.Decision != Refused && len(own.allowing(false)) == 0:
			a.DryRuns = append(a.DryRuns, DryRun{Decision: Refused, Unmatched: own.allowing(true)})
		}
	}
}

// policiesIn returns the policies in a filter.
func policiesIn(built []generate.Built, filter string) []config.Key {
	return origins.Of(builtAs(built, resource.ExtensionType, filter).Reads)
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

// isOpen reports whether the decision depends on what is not known of the caller.
func (a *Access) isOpen() bool { return a != nil && a.Decision == Unknown }

// refuses reports whether the policies refuse the request; not if it does not come to them.
func (a *Access) refuses() bool { return a != nil && a.Decision == Refused }

// pluginOf names the WasmPlugin of a filter, by its name; empty for other filters.
func pluginOf(filter string) string {
	if f, ok := names.ParsePluginFilter(filter); ok {
		return "wasmplugin/" + f.Namespace + "/" + f.Name
	}
	return ""
}

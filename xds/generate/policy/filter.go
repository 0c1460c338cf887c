package policy

import (
	"strconv"

	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	networkrbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	"istio.io/api/annotation"
	security "istio.io/api/security/v1beta1"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/names"
)

// Options is what translation needs besides the policies.
type Options struct {
	// TrustDomains are the trust domain of the mesh, then its aliases.
	TrustDomains []string
}

// The prefixes of statistics and metadata of rules that are only watched, as in Istio.
const (
	DryRunAllowPrefix = "istio_dry_run_allow_"
	DryRunDenyPrefix  = "istio_dry_run_deny_"
	customPrefix      = "istio_ext_authz_"
)

// HTTP returns the filter of requests for the policies of one action. Policies of other
// actions are left out. Policies with the annotation istio.io/dry-run are shadow rules.
// Without any policy the filter has no rules, and lets everything pass. With ALLOW policies
// it refuses what none of them matches, and one without rules matches nothing.
func HTTP(policies []*config.Config, action security.AuthorizationPolicy_Action, o Options) *httprbacv3.RBAC {
	enforced, watched := split(policies, action)
	t := translation{requests, actionOf(action), o.TrustDomains}
	return &httprbacv3.RBAC{
		Rules: t.rules(enforced), ShadowRules: t.rules(watched), ShadowRulesStatPrefix: shadowPrefix(watched, action),
	}
}

// Network returns the filter of TCP connections as HTTP does that of requests. What only
// requests have cannot be judged there: a rule of ALLOW that names it matches nothing, and
// rules of other actions ignore it, so that they match more. NotForTCP lists these fields.
func Network(policies []*config.Config, action security.AuthorizationPolicy_Action, o Options) *networkrbacv3.RBAC {
	enforced, watched := split(policies, action)
	t := translation{connections, actionOf(action), o.TrustDomains}
	return &networkrbacv3.RBAC{
		StatPrefix: envoy.TCPRBACStatPrefix,
		Rules:      t.rules(enforced), ShadowRules: t.rules(watched), ShadowRulesStatPrefix: shadowPrefix(watched, action),
	}
}

// GRPC returns the filter of gRPC servers for the policies of ALLOW or DENY, nil if there is
// nothing to enforce: servers ignore action LOG and shadow rules, and some refuse them. What
// a server cannot judge, it cannot open: a rule of ALLOW that names it matches nothing, and
// rules of DENY ignore it, so that they match more. NotForGRPC lists these fields.
// https://github.com/grpc/proposal/blob/master/A41-xds-rbac.md
func GRPC(policies []*config.Config, action security.AuthorizationPolicy_Action, o Options) *httprbacv3.RBAC {
	enforced, _ := split(policies, action)
	if len(enforced) == 0 || actionOf(action) == rbacv3.RBAC_LOG {
		return nil
	}
	return &httprbacv3.RBAC{Rules: translation{calls, actionOf(action), o.TrustDomains}.rules(enforced)}
}

// Custom returns the filter of requests that selects what CUSTOM policies ask their providers about.
// It refuses nothing: the filter that asks follows. An attribute that cannot be judged is ignored,
// so that more is asked about.
func Custom(policies []*config.Config, o Options) *httprbacv3.RBAC {
	rules := customRules(policies, requests, o)
	return &httprbacv3.RBAC{ShadowRules: rules, ShadowRulesStatPrefix: selectedPrefix(rules)}
}

// CustomNetwork is Custom for TCP connections.
func CustomNetwork(policies []*config.Config, o Options) *networkrbacv3.RBAC {
	rules := customRules(policies, connections, o)
	return &networkrbacv3.RBAC{StatPrefix: envoy.TCPRBACStatPrefix, ShadowRules: rules, ShadowRulesStatPrefix: selectedPrefix(rules)}
}

func customRules(policies []*config.Config, p platform, o Options) *rbacv3.RBAC {
	var asking []*config.Config
	for _, c := range policies {
		if specOf(c).GetAction() == security.AuthorizationPolicy_CUSTOM {
			asking = append(asking, c)
		}
	}
	return translation{p, rbacv3.RBAC_DENY, o.TrustDomains}.named(asking, func(c *config.Config, r names.PolicyRule) string {
		return r.CustomKey(specOf(c).GetProvider().GetName())
	})
}

func selectedPrefix(rules *rbacv3.RBAC) string {
	if rules == nil {
		return ""
	}
	return customPrefix
}

// DryRun says whether a policy is watched and not enforced.
func DryRun(c *config.Config) bool {
	dry, err := strconv.ParseBool(c.Annotations[annotation.IoIstioDryRun.Name])
	return err == nil && dry
}

// split returns the policies of an action: those that are enforced, and those that are watched.
func split(policies []*config.Config, action security.AuthorizationPolicy_Action) (enforced, watched []*config.Config) {
	for _, c := range policies {
		switch {
		case specOf(c).GetAction() != action:
		case DryRun(c):
			watched = append(watched, c)
		default:
			enforced = append(enforced, c)
		}
	}
	return enforced, watched
}

func specOf(c *config.Config) *security.AuthorizationPolicy {
	return c.Spec.(*security.AuthorizationPolicy)
}

func actionOf(a security.AuthorizationPolicy_Action) rbacv3.RBAC_Action {
	switch a {
	case security.AuthorizationPolicy_ALLOW:
		return rbacv3.RBAC_ALLOW
	case security.AuthorizationPolicy_AUDIT:
		return rbacv3.RBAC_LOG
	}
	return rbacv3.RBAC_DENY
}

func shadowPrefix(watched []*config.Config, action security.AuthorizationPolicy_Action) string {
	switch {
	case len(watched) == 0:
	case action == security.AuthorizationPolicy_ALLOW:
		return DryRunAllowPrefix
	case action == security.AuthorizationPolicy_DENY:
		return DryRunDenyPrefix
	}
	return ""
}

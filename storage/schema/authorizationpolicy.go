package schema

import (
	security "istio.io/api/security/v1beta1"

	"github.com/portolan-mesh/portolan/storage/config"
)

func authorizationPolicy() *Schema {
	return definition[*security.AuthorizationPolicy]{
		kind: AuthorizationPolicy, plural: "authorizationpolicies", shortName: "ap",
		codec:  config.Protobuf[security.AuthorizationPolicy](),
		served: serve("selector", "targetRef", "targetRefs", "rules", "action", "provider"),
		check:  checkAuthorizationPolicy,
	}.schema()
}

func checkAuthorizationPolicy(c checker, p *security.AuthorizationPolicy) {
	c.target(p)
	custom := p.Action == security.AuthorizationPolicy_CUSTOM
	switch {
	case custom && p.GetProvider().GetName() == "":
		c.at("provider", "name").fail("is missing: action CUSTOM asks a provider, one of extensionProviders of the mesh configuration")
	case !custom && p.GetProvider() != nil:
		c.at("provider").fail("goes with action CUSTOM only, the action is %s", p.Action)
	}
	if p.Rules == nil && (custom || p.Action == security.AuthorizationPolicy_DENY) {
		c.at("rules").fail("is missing, so that %s never happens: write rules: [{}] for every request", p.Action)
	}
}

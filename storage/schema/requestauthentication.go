package schema

import (
	security "istio.io/api/security/v1beta1"
)

func requestAuthentication() *Schema {
	return definition[*security.RequestAuthentication]{
		kind: RequestAuthentication, plural: "requestauthentications", shortName: "ra",
		newSpec: func() *security.RequestAuthentication { return &security.RequestAuthentication{} },
		stored:  true,
		check:   checkRequestAuthentication,
	}.schema()
}

func checkRequestAuthentication(c checker, r *security.RequestAuthentication) {
	c.at("selector", "matchLabels").labels(r.GetSelector().GetMatchLabels())
	if r.Selector != nil && (r.TargetRef != nil || len(r.TargetRefs) > 0) {
		c.at("selector").fail("excludes targetRefs: set one of the two")
	}
	each(c.at("jwtRules"), r.JwtRules, func(c checker, rule *security.JWTRule) {
		if rule.GetIssuer() == "" && rule.GetJwksUri() == "" {
			c.at("issuer").fail("is missing: set issuer or jwksUri")
		}
		if rule.GetJwks() != "" && rule.GetJwksUri() != "" {
			c.at("jwks").fail("excludes jwksUri: set one of the two")
		}
		c.at("timeout").duration(rule.GetTimeout())
	})
}

package schema

import (
	security "istio.io/api/security/v1beta1"

	"github.com/portolan-mesh/portolan/storage/config"
)

func requestAuthentication() *Schema {
	return definition[*security.RequestAuthentication]{
		kind: RequestAuthentication, plural: "requestauthentications", shortName: "ra",
		codec:  config.Protobuf[security.RequestAuthentication](),
		stored: true, security: "requests with no token or an invalid one are let through",
		check: checkRequestAuthentication,
	}.schema()
}

func checkRequestAuthentication(c checker, r *security.RequestAuthentication) {
	c.target(r)
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

package schema

import (
	"net/url"
	"strings"
	"time"

	security "istio.io/api/security/v1beta1"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/keyset"
)

func requestAuthentication() *Schema {
	return definition[*security.RequestAuthentication]{
		kind: RequestAuthentication, plural: "requestauthentications", shortName: "ra",
		codec: config.Protobuf[security.RequestAuthentication](),
		served: serve("selector", "targetRef", "targetRefs").
			with("jwtRules", serve("issuer", "audiences", "jwksUri", "jwks", "fromHeaders", "fromParams", "fromCookies",
				"outputPayloadToHeader", "forwardOriginalToken", "outputClaimToHeaders", "timeout", "spaceDelimitedClaims")),
		check: checkRequestAuthentication,
	}.schema()
}

func checkRequestAuthentication(c checker, r *security.RequestAuthentication) {
	c.target(r)
	each(c.at("jwtRules"), r.JwtRules, checkJWTRule)
}

// checkJWTRule is as strict as Istio. (validateJwtRule in pkg/config/validation.)
func checkJWTRule(c checker, rule *security.JWTRule) {
	if rule.GetIssuer() == "" && rule.GetJwksUri() == "" {
		c.at("issuer").fail("is missing: set issuer or jwksUri")
	}
	checkKeys(c, rule)
	each(c.at("audiences"), rule.GetAudiences(), checker.required)
	each(c.at("fromParams"), rule.GetFromParams(), checker.required)
	each(c.at("spaceDelimitedClaims"), rule.GetSpaceDelimitedClaims(), checker.required)
	each(c.at("fromCookies"), rule.GetFromCookies(), checker.cookieName)
	each(c.at("fromHeaders"), rule.GetFromHeaders(), func(c checker, h *security.JWTHeader) {
		c.at("name").headerName(h.GetName())
		c.at("prefix").oneLine(h.GetPrefix())
	})
	if h := rule.GetOutputPayloadToHeader(); h != "" {
		c.at("outputPayloadToHeader").headerName(h)
	}
	each(c.at("outputClaimToHeaders"), rule.GetOutputClaimToHeaders(), func(c checker, o *security.ClaimToHeader) {
		c.at("header").headerName(o.GetHeader())
		if o.GetClaim() == "" {
			c.at("claim").fail("is missing")
		} else if strings.Contains("."+o.GetClaim()+".", "..") {
			c.at("claim").fail("%q has an empty part: write the names of nested claims with one dot between them", o.GetClaim())
		}
	})
	unique(c.at("outputClaimToHeaders"), rule.GetOutputClaimToHeaders(), func(o *security.ClaimToHeader) string { return lower(o.GetHeader()) }, "header")
	c.at("timeout").duration(rule.GetTimeout())
	if t := rule.GetTimeout().AsDuration(); t > MaxKeysTimeout {
		c.at("timeout").warn("is longer than a fetch of keys may take: it counts as %s", MaxKeysTimeout)
	}
}

// MaxKeysTimeout bounds the time of one fetch of keys.
const MaxKeysTimeout = 10 * time.Second

// cookieName checks the name of a cookie (RFC 6265, section 4.1.1).
func (c checker) cookieName(name string) {
	if !headerToken.MatchString(name) {
		c.fail("%q is not the name of a cookie", name)
	}
}

// checkKeys checks where the keys of a rule come from.
func checkKeys(c checker, rule *security.JWTRule) {
	switch {
	case rule.GetJwks() != "" && rule.GetJwksUri() != "":
		c.at("jwks").fail("excludes jwksUri: set one of the two")
	case rule.GetJwks() != "":
		c.at("jwks").inlineKeys(rule.GetJwks())
	case rule.GetJwksUri() != "":
		c.at("jwksUri").fetchedFrom(rule.GetJwksUri())
	case rule.GetIssuer() != "":
		if u, err := url.Parse(rule.GetIssuer()); err != nil || u.Host == "" {
			c.at("issuer").warn("%q is no URL, so its keys cannot be discovered, and all its tokens are refused: set jwksUri or jwks", rule.GetIssuer())
		} else {
			c.at("issuer").fetchedFrom(rule.GetIssuer())
		}
	}
}

// fetchedFrom checks the URL of keys. (Istio: security.ParseJwksURI.)
func (c checker) fetchedFrom(text string) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.User != nil || u.Fragment != "" || u.Scheme != "https" && u.Scheme != "http":
		c.fail("%q is no URL of keys: write one such as https://accounts.example/keys", text)
	case u.Scheme == "http" && !keyset.OnThisMachine(u.Hostname()):
		c.warn("is fetched in plaintext: who changes the answer on its way can make tokens; use https")
	}
}

// inlineKeys checks the keys that a rule contains.
func (c checker) inlineKeys(text string) {
	keys, err := keyset.ReadInline(text)
	if err != nil {
		c.failIf(err)
		return
	}
	for i, trait := range keys.Traits {
		c := c.at("keys").index(i)
		switch trait {
		case keyset.Private:
			c.warn("has its private part, with which tokens are made: give the public part alone. Proxies get no other")
		case keyset.Shared:
			c.warn("is a secret shared with the issuer: who may read this object, or the configuration of a proxy, can make tokens; use a public key")
		case keyset.Weak:
			c.warn("is an RSA key of less than %d bits, which can be broken: use a longer one", keyset.MinRSA)
		case keyset.Unusable:
			c.warn("is not for signatures, and has no effect")
		case keyset.Fine:
		}
	}
}

package schema

import (
	"crypto/x509"
	"net/url"
	"slices"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/portolan-mesh/portolan/storage/access"
	"github.com/portolan-mesh/portolan/storage/config"
)

func tokenIssuer() *Schema {
	s := definition[*access.TokenIssuer]{
		kind: TokenIssuer, plural: "tokenissuers",
		codec: config.JSON[access.TokenIssuer](),
		served: serve("issuer", "audiences", "jwksUri", "ca").
			with("workloads", serve("namespace", "namespaceClaim", "serviceAccount", "serviceAccountClaim").with("match", serve("claim", "values"))).
			with("users", serve("username", "groups").with("login", serve("clientId", "scopes"))),
		check: checkTokenIssuer,
	}.schema()
	s.Internal = true
	return s
}

func checkTokenIssuer(c checker, t *access.TokenIssuer) {
	c.at("issuer").keysURL(t.Issuer)
	if t.JWKSURI != "" {
		c.at("jwksUri").keysURL(t.JWKSURI)
	}
	if len(t.Audiences) == 0 {
		c.at("audiences").fail("is missing: tokens that the issuer makes for others would be taken too")
	}
	for i, audience := range t.Audiences {
		c.at("audiences").index(i).required(audience)
	}
	if t.CA != "" && !x509.NewCertPool().AppendCertsFromPEM([]byte(t.CA)) {
		c.at("ca").fail("has no certificate in PEM")
	}
	if len(t.Workloads) == 0 && t.Users == nil {
		c.fail("says of nobody who they are: give workloads, users or both")
	}
	each(c.at("workloads"), t.Workloads, checkWorkloadRule)
	if t.Users != nil && t.Users.Login != nil {
		checkLogin(c.at("users").at("login"), t.Users.Login, t.Audiences)
	}
}

func checkLogin(c checker, l *access.Login, audiences []string) {
	switch {
	case l.ClientID == "":
		c.at("clientId").fail("is missing: register a client without a secret at the issuer, which may use the device flow")
	case strings.ContainsFunc(l.ClientID, func(r rune) bool { return r < ' ' || r > '~' }):
		c.at("clientId").fail("%q is not printable ASCII", l.ClientID)
	case !slices.Contains(audiences, l.ClientID):
		c.at("clientId").fail("%q is none of the audiences: the tokens of users who log in are for it, and would be refused. Add it to audiences", l.ClientID)
	}
	for i, scope := range l.Scopes {
		if scope == "" || strings.ContainsFunc(scope, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' }) {
			c.at("scopes").index(i).fail("%q is no scope: it is one word of ASCII, such as groups", scope)
		}
	}
}

// keysURL checks the URL of keys, which uses HTTPS or leads to this machine.
func (c checker) keysURL(text string) {
	u, err := url.Parse(text)
	switch {
	case text == "":
		c.fail("is missing")
	case err != nil || u.Host == "" || u.User != nil || u.Fragment != "" || u.RawQuery != "":
		c.fail("%q is no URL such as https://accounts.example", text)
	case u.Scheme != "https" && (u.Scheme != "http" || u.Hostname() != "localhost" && u.Hostname() != "127.0.0.1" && u.Hostname() != "::1"):
		c.fail("%q must be https: keys that come in plaintext prove nothing", text)
	}
}

func checkWorkloadRule(c checker, r access.WorkloadRule) {
	part := func(field, text string, claim []string) {
		switch {
		case text == "" && len(claim) == 0:
			c.at(field).fail("is missing: give it, or %sClaim", field)
		case text != "" && len(claim) > 0:
			c.at(field).fail("excludes %sClaim: set one of the two", field)
		case text != "" && spiffeid.ValidatePathSegment(text) != nil:
			c.at(field).fail("%q is not letters, digits, dots, dashes and underscores", text)
		}
		claimPath(c.at(field+"Claim"), claim)
	}
	part("namespace", r.Namespace, r.NamespaceClaim)
	part("serviceAccount", r.ServiceAccount, r.ServiceAccountClaim)
	if len(r.Match) == 0 && len(r.ServiceAccountClaim) == 0 {
		c.at("match").fail("is missing: every token of the issuer would be %s/%s", r.Namespace, r.ServiceAccount)
	}
	each(c.at("match"), r.Match, func(c checker, m access.ClaimMatch) {
		if len(m.Claim) == 0 {
			c.at("claim").fail("is missing")
		}
		claimPath(c.at("claim"), m.Claim)
		if len(m.Values) == 0 {
			c.at("values").fail("is missing")
		}
		for i, value := range m.Values {
			if c.at("values").index(i).required(value); strings.Contains(strings.TrimSuffix(value, "*"), "*") {
				c.at("values").index(i).fail("%q has a * that is not its end", value)
			}
		}
	})
}

func claimPath(c checker, path []string) {
	for i, name := range path {
		c.index(i).required(name)
	}
}

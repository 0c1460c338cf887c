package schema_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/storage/access"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

func TestRulesOfTokenIssuers(t *testing.T) {
	t.Parallel()
	kind := schema.Pilot().Kind(schema.TokenIssuer)
	good := access.TokenIssuer{Issuer: "https://ci.example", Audiences: []string{"portolan"}, Users: &access.UserClaims{}}
	with := func(change func(*access.TokenIssuer)) access.TokenIssuer {
		out := good
		change(&out)
		return out
	}
	rule := func(r access.WorkloadRule) access.TokenIssuer {
		return with(func(i *access.TokenIssuer) { i.Users, i.Workloads = nil, []access.WorkloadRule{r} })
	}
	match := []access.ClaimMatch{{Claim: []string{"sub"}, Values: []string{"repo:shop/*"}}}
	for name, c := range map[string]struct {
		spec access.TokenIssuer
		want []string
	}{
		"users":    {good, nil},
		"loopback": {with(func(i *access.TokenIssuer) { i.JWKSURI = "http://127.0.0.1:8080/keys" }), nil},
		"rule":     {rule(access.WorkloadRule{Match: match, Namespace: "shop", ServiceAccount: "web"}), nil},
		"claims":   {rule(access.WorkloadRule{NamespaceClaim: []string{"kubernetes.io", "namespace"}, ServiceAccountClaim: []string{"a"}}), nil},
		"login": {with(func(i *access.TokenIssuer) {
			i.Users = &access.UserClaims{Login: &access.Login{ClientID: "portolan", Scopes: []string{"groups"}}}
		}), nil},
		"login of another audience": {with(func(i *access.TokenIssuer) { i.Users = &access.UserClaims{Login: &access.Login{ClientID: "cli"}} }), []string{
			`spec.users.login.clientId: "cli" is none of the audiences: the tokens of users who log in are for it, and would be refused. Add it to audiences`,
		}},
		"login without a client": {with(func(i *access.TokenIssuer) {
			i.Users = &access.UserClaims{Login: &access.Login{Scopes: []string{"a b", ""}}}
		}), []string{
			"spec.users.login.clientId: is missing: register a client without a secret at the issuer, which may use the device flow",
			`spec.users.login.scopes[0]: "a b" is no scope: it is one word of ASCII, such as groups`,
			`spec.users.login.scopes[1]: "" is no scope: it is one word of ASCII, such as groups`,
		}},
		"login with a client that is no text": {with(func(i *access.TokenIssuer) {
			i.Audiences, i.Users = append(i.Audiences, "a\nb"), &access.UserClaims{Login: &access.Login{ClientID: "a\nb"}}
		}), []string{`spec.users.login.clientId: "a\nb" is not printable ASCII`}},
		"empty": {access.TokenIssuer{}, []string{
			"spec.issuer: is missing", "spec.audiences: is missing: tokens that the issuer makes for others would be taken too",
			"spec: says of nobody who they are: give workloads, users or both",
		}},
		"plaintext": {with(func(i *access.TokenIssuer) { i.Issuer, i.JWKSURI = "http://ci.example", "ci.example" }), []string{
			`spec.issuer: "http://ci.example" must be https: keys that come in plaintext prove nothing`, `spec.jwksUri: "ci.example" is no URL such as https://accounts.example`,
		}},
		"authority": {with(func(i *access.TokenIssuer) { i.CA = "none" }), []string{"spec.ca: has no certificate in PEM"}},
		"everybody": {rule(access.WorkloadRule{Namespace: "shop", ServiceAccount: "web"}), []string{"spec.workloads[0].match: is missing: every token of the issuer would be shop/web"}},
		"nobody": {rule(access.WorkloadRule{Match: []access.ClaimMatch{{}}, Namespace: "a/b", NamespaceClaim: []string{""}}), []string{
			"spec.workloads[0].namespace: excludes namespaceClaim: set one of the two",
			"spec.workloads[0].namespaceClaim[0]: is missing",
			"spec.workloads[0].serviceAccount: is missing: give it, or serviceAccountClaim",
			"spec.workloads[0].match[0].claim: is missing", "spec.workloads[0].match[0].values: is missing",
		}},
		"star": {rule(access.WorkloadRule{Match: []access.ClaimMatch{{Claim: []string{"sub"}, Values: []string{"a*b"}}}, Namespace: "..", ServiceAccount: "web"}), []string{
			`spec.workloads[0].namespace: ".." is not letters, digits, dots, dashes and underscores`,
			`spec.workloads[0].match[0].values[0]: "a*b" has a * that is not its end`,
		}},
	} {
		object := &config.Config{Meta: config.Meta{GroupVersionKind: schema.TokenIssuer, Namespace: "istio-system", Name: "ci"}, Spec: &c.spec}
		_, err := kind.Validate(object)
		var got []string
		for _, fault := range config.Faults(err) {
			got = append(got, fault.Error())
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

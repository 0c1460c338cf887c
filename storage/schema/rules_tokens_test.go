package schema_test

import (
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/keyset"
	"github.com/portolan-mesh/portolan/storage/schema"
)

func TestRulesOfRequestAuthentications(t *testing.T) {
	t.Parallel()
	const public = `{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"`
	of := func(rule string) string { return "jwtRules: [{issuer: https://a.example, " + rule + "}]" }
	keys := func(key string) string { return of("jwks: '{\"keys\":[" + key + "]}'") }
	one := func(name, spec string, refused ...string) rule {
		return rule{name: name, kind: schema.RequestAuthentication, spec: spec, refused: refused}
	}
	warned := func(r rule, warned ...string) rule {
		r.warned = warned
		return r
	}
	checkRules(t, []rule{
		one("sound", `jwtRules: [{issuer: a, jwksUri: "https://a.example"}, {issuer: "https://b.example"}, {jwksUri: "http://localhost:8080/keys"}]`),
		one("no rule", `{selector: {matchLabels: {app: a}}}`),
		one("private address", `jwtRules: [{issuer: a, jwksUri: "https://10.1.2.3:8443/keys?realm=shop"}]`),
		one("no issuer", `jwtRules: [{}, {jwks: '{"keys":[`+public+`}]}'}]`,
			"spec.jwtRules[0].issuer: is missing: set issuer or jwksUri",
			"spec.jwtRules[1].issuer: is missing: set issuer or jwksUri"),
		one("keys twice", `jwtRules: [{jwksUri: "https://a.example", jwks: b}]`, "spec.jwtRules[0].jwks: excludes jwksUri: set one of the two"),
		one("URLs", `jwtRules: [{jwksUri: a}, {jwksUri: "ftp://a.example"}, {jwksUri: "https://user:word@a.example"}, {jwksUri: "https://"}, {issuer: "ftp://a.example"}]`,
			`spec.jwtRules[0].jwksUri: "a" is no URL of keys: write one such as https://accounts.example/keys`,
			`spec.jwtRules[1].jwksUri: "ftp://a.example" is no URL of keys: write one such as https://accounts.example/keys`,
			`spec.jwtRules[2].jwksUri: "https://user:word@a.example" is no URL of keys: write one such as https://accounts.example/keys`,
			`spec.jwtRules[3].jwksUri: "https://" is no URL of keys: write one such as https://accounts.example/keys`,
			`spec.jwtRules[4].issuer: "ftp://a.example" is no URL of keys: write one such as https://accounts.example/keys`),
		warned(one("plaintext", `jwtRules: [{jwksUri: "http://a.example/keys"}]`),
			"spec.jwtRules[0].jwksUri is fetched in plaintext: who changes the answer on its way can make tokens; use https"),
		warned(one("an issuer that is no URL", `jwtRules: [{issuer: testing@secure.istio.io}]`),
			`spec.jwtRules[0].issuer "testing@secure.istio.io" is no URL, so its keys cannot be discovered, and all its tokens are refused: set jwksUri or jwks`),
		one("empty values", of(`audiences: [""], fromParams: [""], fromCookies: [""], fromHeaders: [{}], outputClaimToHeaders: [{}], spaceDelimitedClaims: [""]`),
			"spec.jwtRules[0].audiences[0]: is missing",
			"spec.jwtRules[0].fromParams[0]: is missing",
			"spec.jwtRules[0].spaceDelimitedClaims[0]: is missing",
			`spec.jwtRules[0].fromCookies[0]: "" is not the name of a cookie`,
			`spec.jwtRules[0].fromHeaders[0].name: "" is not the name of an HTTP header`,
			`spec.jwtRules[0].outputClaimToHeaders[0].header: "" is not the name of an HTTP header`,
			"spec.jwtRules[0].outputClaimToHeaders[0].claim: is missing"),
		one("names", of(`fromHeaders: [{name: "a b"}, {name: ":path"}, {name: a, prefix: "a\nb"}], fromCookies: ["a=b"], outputPayloadToHeader: "a:b",
			outputClaimToHeaders: [{header: "a b", claim: a..b}, {header: x, claim: .a}, {header: X, claim: a}]`),
			`spec.jwtRules[0].fromCookies[0]: "a=b" is not the name of a cookie`,
			`spec.jwtRules[0].fromHeaders[0].name: "a b" is not the name of an HTTP header`,
			`spec.jwtRules[0].fromHeaders[1].name: ":path" is not the name of an HTTP header`,
			"spec.jwtRules[0].fromHeaders[2].prefix: must be one line of text",
			`spec.jwtRules[0].outputPayloadToHeader: "a:b" is not the name of an HTTP header`,
			`spec.jwtRules[0].outputClaimToHeaders[0].header: "a b" is not the name of an HTTP header`,
			`spec.jwtRules[0].outputClaimToHeaders[0].claim: "a..b" has an empty part: write the names of nested claims with one dot between them`,
			`spec.jwtRules[0].outputClaimToHeaders[1].claim: ".a" has an empty part: write the names of nested claims with one dot between them`,
			`spec.jwtRules[0].outputClaimToHeaders[2].header: "x" is set twice, also at spec.jwtRules[0].outputClaimToHeaders[1].header`),
		one("timeout", of("timeout: 0s"), "spec.jwtRules[0].timeout: must be at least 1ms, is 0s"),
		warned(one("long timeout", of("timeout: 11s")), "spec.jwtRules[0].timeout is longer than a fetch of keys may take: it counts as 10s"),
		one("scope", `{selector: {matchLabels: {app: a}}, targetRefs: [{kind: Gateway, group: gateway.networking.k8s.io, name: a}]}`,
			"spec.selector: excludes targetRefs: set one of the two"),
		one("keys", keys(public+"}")),
		one("no JSON", of("jwks: '{'"), "spec.jwtRules[0].jwks: is no JSON Web Key Set: unexpected end of JSON input"),
		one("one key that is no set", of("jwks: '"+public+"}'"), `spec.jwtRules[0].jwks: is no JSON Web Key Set: its "keys" are missing`),
		one("what is no key", keys(`{"kty":"odd"}`), "spec.jwtRules[0].jwks: has something at keys[0] that is no key: unsupported key type/format"),
		one("no key for signatures", keys(public+`,"use":"enc"}`), "spec.jwtRules[0].jwks: has no key that verifies signatures"),
		warned(one("odd keys", keys(public+`,"use":"enc"},`+public+`,"d":"nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A"},{"kty":"oct","k":"AQAB"},{"kty":"RSA","n":"AQAB","e":"AQAB"}`)),
			"spec.jwtRules[0].jwks.keys[0] is not for signatures, and has no effect",
			"spec.jwtRules[0].jwks.keys[1] has its private part, with which tokens are made: give the public part alone. Proxies get no other",
			"spec.jwtRules[0].jwks.keys[2] is a secret shared with the issuer: who may read this object, or the configuration of a proxy, can make tokens; use a public key",
			"spec.jwtRules[0].jwks.keys[3] is an RSA key of less than 2048 bits, which can be broken: use a longer one"),
	})
}

func TestRulesOfKeySets(t *testing.T) {
	t.Parallel()
	source := keyset.Source{URL: "https://a.example/keys"}
	for _, c := range []struct {
		name string
		spec keyset.Fetched
		want string
	}{
		{source.Name(), keyset.Fetched{Source: source, Error: "it is away"}, ""},
		{"mine", keyset.Fetched{Source: source}, "metadata.name: must be " + source.Name() + " for this source: the leading server writes this object"},
		{source.Name(), keyset.Fetched{Source: source, Keys: "{}"}, `spec.keys: is no JSON Web Key Set: its "keys" are missing`},
	} {
		object := &config.Config{Meta: config.Meta{GroupVersionKind: schema.KeySet, Namespace: "istio-system", Name: c.name}, Spec: &c.spec}
		_, err := schema.Pilot().Kind(schema.KeySet).Validate(object)
		var got []string
		for _, fault := range config.Faults(err) {
			got = append(got, fault.Error())
		}
		if all := strings.Join(got, "; "); all != c.want {
			t.Errorf("%s: %q, want %q", c.name, all, c.want)
		}
	}
}

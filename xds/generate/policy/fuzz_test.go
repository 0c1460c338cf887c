package policy_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	security "istio.io/api/security/v1beta1"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/envoy/message"
	"github.com/portolan-mesh/portolan/xds/generate/policy"
)

// FuzzTranslate: whatever a policy says, also one that validation refuses, its filters are
// messages that Envoy takes, and an ALLOW policy never becomes no rules.
func FuzzTranslate(f *testing.F) {
	for _, value := range []string{"", "*", "**", "a*", "*a", "a*b", "/", "//", "{*}", "/a/{**}", "[a]", "[]", "[", "a/b/c", "10.0.0.1/99", "::1", "0", ".+(", "spiffe://td/ns/a/sa/b", "*td/ns/a/sa/b", "\n"} {
		f.Add("request.headers[x-a]", value)
		f.Add(value, "x")
	}
	for _, key := range []string{"request.auth.claims[a][b]", "experimental.envoy.filters.a[b]", "experimental.envoy.filters.[b]", "request.headers[:]", "source.principal", "request.headers[grpc-x]"} {
		f.Add(key, "v")
	}
	f.Fuzz(func(t *testing.T, key, value string) {
		if !utf8.ValidString(key) || !utf8.ValidString(value) {
			t.Skip() // no document of an API has it
		}
		v := []string{value}
		spec := &security.AuthorizationPolicy{Rules: []*security.Rule{
			{From: []*security.Rule_From{{Source: &security.Source{Principals: v, NotNamespaces: v, IpBlocks: v}}}, To: []*security.Rule_To{{Operation: &security.Operation{Ports: v}}}},
			{From: []*security.Rule_From{{Source: &security.Source{ServiceAccounts: v, TrustDomains: v, RequestPrincipals: v}}}},
			{To: []*security.Rule_To{{Operation: &security.Operation{Hosts: v, Methods: v, Paths: v, NotPaths: v}}}},
			{When: []*security.Condition{{Key: key, Values: v, NotValues: v}}}, nil, {From: []*security.Rule_From{nil}, To: []*security.Rule_To{{}}},
		}}
		for _, action := range []security.AuthorizationPolicy_Action{allow, deny, audit, custom} {
			spec.Action = action
			all := []*config.Config{{Meta: config.Meta{GroupVersionKind: schema.AuthorizationPolicy, Namespace: "ns", Name: "a"}, Spec: spec}}
			http, network := policy.HTTP(all, action, options()), policy.Network(all, action, options())
			message.Pack(http)
			message.Pack(network)
			message.Pack(policy.Custom(all, options()))
			if grpc := policy.GRPC(all, action, options()); grpc != nil {
				message.Pack(grpc)
			}
			if action == allow && (http.GetRules() == nil || network.GetRules() == nil) {
				t.Errorf("an ALLOW policy has no rules")
			}
			if hidden := policy.NotForTCP(spec); !strings.Contains(strings.Join(hidden, " "), "hosts") {
				t.Errorf("fields that TCP lacks: %v", hidden)
			}
		}
	})
}

// FuzzTokens: whatever a RequestAuthentication says, the filter for tokens is one that Envoy takes
// if validation takes the object, and its keys are public.
func FuzzTokens(f *testing.F) {
	for _, keys := range []string{edwards, private, "", "{}", `{"keys":[{"kty":"oct","k":"AQ"}]}`, `{"keys":[{"kty":"RSA","n":"AQ","e":"AQ"}]}`, `{"keys":[{"kty":"EC","crv":"P-256","x":"AQ","y":"AQ"}]}`} {
		f.Add("https://a.example", keys, "x-token", "Bearer ", "groups")
		f.Add("", keys, ":path", "", "a.b")
		f.Add("a", keys, "x\n", "\x00", "")
	}
	f.Fuzz(func(t *testing.T, issuer, keys, name, prefix, claim string) {
		if !utf8.ValidString(issuer + keys + name + prefix + claim) {
			t.Skip() // no document of an API has it
		}
		spec := &security.RequestAuthentication{JwtRules: []*security.JWTRule{
			{Issuer: issuer, Jwks: keys, FromHeaders: []*security.JWTHeader{{Name: name, Prefix: prefix}}, FromParams: []string{name}, FromCookies: []string{name}, Audiences: []string{claim}},
			{Issuer: issuer, Jwks: keys, OutputPayloadToHeader: name, OutputClaimToHeaders: []*security.ClaimToHeader{{Header: name, Claim: claim}}, SpaceDelimitedClaims: []string{claim}},
		}}
		filter := policy.Tokens(spec.GetJwtRules(), fetched, true)
		object := &config.Config{Meta: config.Meta{GroupVersionKind: schema.RequestAuthentication, Namespace: "ns", Name: "a"}, Spec: spec}
		if _, err := schema.Pilot().Kind(schema.RequestAuthentication).Validate(object); err == nil {
			if err := filter.ValidateAll(); err != nil {
				t.Errorf("%v: %v", spec, err)
			}
		}
		for _, p := range filter.GetProviders() {
			if text := p.GetLocalJwks().GetInlineString(); strings.Contains(text, `"d":`) && !strings.Contains(text, `"kid":`) {
				t.Errorf("private keys: %s", text)
			}
		}
	})
}

package policy_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"strings"
	"testing"

	"crypto/elliptic"

	jwtauthnv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/jwt_authn/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	securityv1beta1 "istio.io/api/security/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/keyset"
	"github.com/portolan-mesh/portolan/xds/generate/policy"
	"github.com/portolan-mesh/portolan/xds/xdstest"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
)

const (
	edwards = `{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}`
	private = `{"keys":[{"kty":"OKP","crv":"Ed25519","d":"nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}`
)

// fetched are keys of one source.
func fetched(source keyset.Source) string {
	return map[string]string{"https://a.example": "FETCHED"}[source.URL]
}

// TestTokens: the filter for rules is as Istio's. Each want is a part of the filter in YAML.
func TestTokens(t *testing.T) {
	t.Parallel()
	any := func(i int) string {
		return fmt.Sprintf("{requiresAny: {requirements: [{providerName: origins-%d}, {allowMissing: {}}]}}", i)
	}
	provider := func(more string) string {
		return "{payloadInMetadata: payload, normalizePayloadInMetadata: {spaceDelimitedClaims: [permission, scope]}, localJwks: {inlineString: FETCHED}, " + more + "}"
	}
	for name, c := range map[string]struct {
		rules   string
		reroute bool
		want    string
	}{
		"none": {"[]", true, "{}"},
		"one": {`[{issuer: "https://a.example"}]`, false,
			"{bypassCorsPreflight: true, rules: [{match: {prefix: /}, requires: " + any(0) + "}], providers: {origins-0: " + provider(`issuer: "https://a.example"`) + "}}"},
		"at a gateway": {`[{issuer: "https://a.example"}]`, true,
			"{bypassCorsPreflight: true, rules: [{match: {prefix: /}, requires: " + any(0) + "}], providers: {origins-0: " + provider(`issuer: "https://a.example", clearRouteCache: true`) + "}}"},
		"several": {`[{issuer: a, jwksUri: "https://a.example"}, {issuer: b, jwksUri: "https://a.example"}]`, false,
			"{bypassCorsPreflight: true, rules: [{match: {prefix: /}, requires: {requiresAny: {requirements: [{providerName: origins-0}, {providerName: origins-1}, {requiresAll: {requirements: [" + any(0) + ", " + any(1) + "]}}]}}}]," +
				"providers: {origins-0: " + provider("issuer: a") + ", origins-1: " + provider("issuer: b") + "}}"},
		"every field": {`[{issuer: a, jwksUri: "https://a.example", audiences: [u, w], fromHeaders: [{name: h, prefix: "p "}, {name: i}], fromParams: [q], fromCookies: [c],
			outputPayloadToHeader: x-payload, forwardOriginalToken: true, outputClaimToHeaders: [{header: x-user, claim: user.name}], timeout: 1s}]`, false,
			"{bypassCorsPreflight: true, rules: [{match: {prefix: /}, requires: " + any(0) + "}], providers: {origins-0: " + provider(`issuer: a, audiences: [u, w], fromHeaders: [{name: h, valuePrefix: "p "}, {name: i}], fromParams: [q], fromCookies: [c],
				forwardPayloadHeader: x-payload, forward: true, claimToHeaders: [{headerName: x-user, claimName: user.name}]`) + "}}"},
		"claims that are lists of words": {`[{issuer: "https://a.example", spaceDelimitedClaims: [scope, roles]}]`, false,
			"{bypassCorsPreflight: true, rules: [{match: {prefix: /}, requires: " + any(0) + "}], providers: {origins-0: " + strings.Replace(provider(`issuer: "https://a.example"`), "[permission, scope]", "[permission, roles, scope]", 1) + "}}"},
		"private keys": {`[{issuer: a, jwks: '` + private + `'}]`, false,
			"{bypassCorsPreflight: true, rules: [{match: {prefix: /}, requires: " + any(0) + "}], providers: {origins-0: " + strings.Replace(provider("issuer: a"), "FETCHED", "'"+strings.Replace(edwards, `"crv":"Ed25519"`, `"crv":"Ed25519"`, 1)+"'", 1) + "}}"},
	} {
		var spec securityv1beta1.RequestAuthentication
		document, err := yaml.YAMLToJSON([]byte("{jwtRules: " + c.rules + "}"))
		if err == nil {
			err = protojson.Unmarshal(document, &spec)
		}
		want := &jwtauthnv3.JwtAuthentication{}
		if err == nil {
			document, err = yaml.YAMLToJSON([]byte(c.want))
		}
		if err == nil {
			err = protojson.Unmarshal(document, want)
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got := policy.Tokens(spec.GetJwtRules(), fetched, c.reroute)
		if err := got.ValidateAll(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !proto.Equal(got, want) {
			t.Errorf("%s (-want +got):\n%s", name, cmp.Diff(protojson.Format(want), protojson.Format(got)))
		}
	}
}

// TestKeysThatWereNotFetchedVerifyNothing: they are a point whose private part nobody knows, since
// it was found by a hash.
func TestKeysThatWereNotFetchedVerifyNothing(t *testing.T) {
	t.Parallel()
	got := policy.Tokens([]*securityv1beta1.JWTRule{{Issuer: "https://away.example"}}, fetched, false)
	var set struct{ Keys []struct{ X, Y string } }
	if err := json.Unmarshal([]byte(got.GetProviders()["origins-0"].GetLocalJwks().GetInlineString()), &set); err != nil || len(set.Keys) != 1 {
		t.Fatalf("%v, %v", got, err)
	}
	for n := 0; ; n++ {
		x := sha256.Sum256([]byte(fmt.Sprintf("portolan: nobody has this key %d", n)))
		if px, py := elliptic.UnmarshalCompressed(elliptic.P256(), append([]byte{2}, x[:]...)); px != nil {
			encode := func(i *big.Int) string { return base64.RawURLEncoding.EncodeToString(i.FillBytes(make([]byte, 32))) }
			if set.Keys[0].X != encode(px) || set.Keys[0].Y != encode(py) {
				t.Errorf("the key is %v, want %s, %s", set.Keys[0], encode(px), encode(py))
			}
			return
		}
	}
}

// TestRulesOfAWorkload: all policies that select it count, of its own and the root namespace.
func TestRulesOfAWorkload(t *testing.T) {
	t.Parallel()
	rules := func(name, selector string, issuers ...string) string {
		var list []string
		for _, issuer := range issuers {
			list = append(list, "{issuer: "+issuer+", jwks: '"+edwards+"'}")
		}
		return xdstest.Object("RequestAuthentication", name, "{"+selector+"jwtRules: ["+strings.Join(list, ", ")+"]}")
	}
	w := xdstest.NewWorld(t,
		rules("istio-system/mesh", "", "m"), rules("shop/all", "", "z", "b"), rules("bank/all", "", "bank"),
		rules("shop/web", "selector: {matchLabels: {app: web}}, ", "a", "m"), rules("shop/edge", "targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: edge}], ", "e"),
	)
	for _, c := range []struct {
		node xdstest.Node
		want string
	}{
		{xdstest.Node{Namespace: "shop", Labels: map[string]string{"app": "web"}}, "a b m m z"},
		{xdstest.Node{Namespace: "shop"}, "b m z"},
		{xdstest.Node{Namespace: "other"}, "m"},
		{xdstest.Node{Namespace: "shop", Type: discovery.Router, Labels: map[string]string{"gateway.networking.k8s.io/gateway-name": "edge"}}, "b e m z"},
	} {
		message, _, err := policy.Generator{}.Build(w.View(c.node).Of(c.node.Proxy(t)), "portolan.tokens.http")
		if err != nil {
			t.Fatal(err)
		}
		filter := &jwtauthnv3.JwtAuthentication{}
		if err := message.(*corev3.TypedExtensionConfig).GetTypedConfig().UnmarshalTo(filter); err != nil {
			t.Fatal(err)
		}
		var issuers []string
		for i := range len(filter.GetProviders()) {
			p := filter.GetProviders()[fmt.Sprintf("origins-%d", i)]
			issuers = append(issuers, p.GetIssuer())
			if p.GetClearRouteCache() != (c.node.Type == discovery.Router) {
				t.Errorf("%+v: clears the route: %v", c.node, p.GetClearRouteCache())
			}
		}
		if got := strings.Join(issuers, " "); got != c.want {
			t.Errorf("%+v: %s, want %s", c.node, got, c.want)
		}
	}
}

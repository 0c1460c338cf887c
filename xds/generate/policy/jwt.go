package policy

import (
	"fmt"
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	jwtauthnv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/jwt_authn/v3"
	"google.golang.org/protobuf/types/known/emptypb"
	securityv1beta1 "istio.io/api/security/v1beta1"

	"github.com/portolan-mesh/portolan/storage/keyset"
	"github.com/portolan-mesh/portolan/xds/envoy/rbac"
)

// nobodysKeys has one key, of which nobody knows the private part: the first point of P-256 whose x
// is the SHA-256 of "portolan: nobody has this key N". It stands for keys that were never fetched,
// so no token of the issuer is valid. (Istio: FakeJwks.)
const nobodysKeys = `{"keys":[{"kty":"EC","crv":"P-256","kid":"nobody","x":"f5iDrEBEReq_ofuBlsCrKcgzGJt1fZY56Bft3_3lWi8","y":"tutai8vlvfQ_79kE-I4adHDaObNu6o47IIXrqlpz12g"}]}`

// Tokens makes the filter that verifies the tokens of requests by rules, in their order. keys
// returns the fetched keys of a source. No rules let every request pass. With reroute the proxy
// chooses the route again once it knows what a token says. (Istio: convertToEnvoyJwtConfig.)
func Tokens(rules []*securityv1beta1.JWTRule, keys func(keyset.Source) string, reroute bool) *jwtauthnv3.JwtAuthentication {
	if len(rules) == 0 {
		return &jwtauthnv3.JwtAuthentication{}
	}
	out := &jwtauthnv3.JwtAuthentication{Providers: map[string]*jwtauthnv3.JwtProvider{}, BypassCorsPreflight: true}
	var valid, validOrMissing []*jwtauthnv3.JwtRequirement
	for i, rule := range rules {
		name := fmt.Sprintf("origins-%d", i)
		out.Providers[name] = provider(rule, keysOf(rule, keys), reroute)
		by := &jwtauthnv3.JwtRequirement{RequiresType: &jwtauthnv3.JwtRequirement_ProviderName{ProviderName: name}}
		missing := &jwtauthnv3.JwtRequirement{RequiresType: &jwtauthnv3.JwtRequirement_AllowMissing{AllowMissing: &emptypb.Empty{}}}
		valid, validOrMissing = append(valid, by), append(validOrMissing, anyOf(by, missing))
	}
	required := validOrMissing[0]
	if len(rules) > 1 {
		required = anyOf(append(valid, allOf(validOrMissing...))...)
	}
	out.Rules = []*jwtauthnv3.RequirementRule{{
		Match:           &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
		RequirementType: &jwtauthnv3.RequirementRule_Requires{Requires: required},
	}}
	return out
}

func anyOf(of ...*jwtauthnv3.JwtRequirement) *jwtauthnv3.JwtRequirement {
	return &jwtauthnv3.JwtRequirement{RequiresType: &jwtauthnv3.JwtRequirement_RequiresAny{RequiresAny: &jwtauthnv3.JwtRequirementOrList{Requirements: of}}}
}

func allOf(of ...*jwtauthnv3.JwtRequirement) *jwtauthnv3.JwtRequirement {
	return &jwtauthnv3.JwtRequirement{RequiresType: &jwtauthnv3.JwtRequirement_RequiresAll{RequiresAll: &jwtauthnv3.JwtRequirementAndList{Requirements: of}}}
}

// keysOf returns the keys that verify the tokens of a rule.
func keysOf(rule *securityv1beta1.JWTRule, fetched func(keyset.Source) string) string {
	var keys string
	if source, ok := keyset.SourceOf(rule); ok {
		keys = fetched(source)
	} else if inline, err := keyset.ReadInline(rule.GetJwks()); err == nil {
		keys = inline.Public()
	}
	if keys == "" {
		return nobodysKeys
	}
	return keys
}

func provider(rule *securityv1beta1.JWTRule, keys string, reroute bool) *jwtauthnv3.JwtProvider {
	out := &jwtauthnv3.JwtProvider{
		Issuer:               rule.GetIssuer(),
		Audiences:            rule.GetAudiences(),
		FromParams:           rule.GetFromParams(),
		FromCookies:          rule.GetFromCookies(),
		Forward:              rule.GetForwardOriginalToken(),
		ForwardPayloadHeader: rule.GetOutputPayloadToHeader(),
		PayloadInMetadata:    rbac.TokenPayload,
		ClearRouteCache:      reroute,
		NormalizePayloadInMetadata: &jwtauthnv3.JwtProvider_NormalizePayload{
			SpaceDelimitedClaims: spaceDelimited(rule.GetSpaceDelimitedClaims()),
		},
		JwksSourceSpecifier: &jwtauthnv3.JwtProvider_LocalJwks{LocalJwks: &corev3.DataSource{
			Specifier: &corev3.DataSource_InlineString{InlineString: keys},
		}},
	}
	for _, h := range rule.GetFromHeaders() {
		out.FromHeaders = append(out.FromHeaders, &jwtauthnv3.JwtHeader{Name: h.GetName(), ValuePrefix: h.GetPrefix()})
	}
	for _, o := range rule.GetOutputClaimToHeaders() {
		out.ClaimToHeaders = append(out.ClaimToHeaders, &jwtauthnv3.JwtClaimToHeader{HeaderName: o.GetHeader(), ClaimName: o.GetClaim()})
	}
	return out
}

// spaceDelimited returns the claims that are lists of words, in order. (Istio:
// buildSpaceDelimitedClaims.)
func spaceDelimited(more []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(append([]string{"permission", "scope"}, more...))))
}

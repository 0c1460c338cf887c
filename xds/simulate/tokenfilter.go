package simulate

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	jwtv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/jwt_authn/v3"
	"github.com/go-jose/go-jose/v4"
	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/xds/envoy/rbac"
)

// TokenRefusal is why a filter for tokens refused a request.
type TokenRefusal struct {
	// Filter is the name of the filter.
	Filter string
	// Issuer is the issuer of the provider that refuses. It is empty if no provider knows the token.
	Issuer string
	// Reason is Envoy's word, which is also the body of the answer.
	Reason string
}

// Details are the response code details of the refused request in access logs.
func (r TokenRefusal) Details() string {
	return "jwt_authn_access_denied{" + strings.ReplaceAll(r.Reason, " ", "_") + "}"
}

// status is that of the answer.
func (r TokenRefusal) status() int {
	if r.Reason == tokenAudience {
		return http.StatusForbidden
	}
	return http.StatusUnauthorized
}

// tokenGuard is a filter that verifies tokens.
type tokenGuard struct {
	name   string
	config *jwtv3.JwtAuthentication
	// keys are those of the providers.
	keys map[string][]jose.JSONWebKey
}

// newTokenGuard fails on what the simulation does not know.
func newTokenGuard(name string, config *jwtv3.JwtAuthentication) (tokenGuard, error) {
	known := proto.CloneOf(config)
	known.Providers, known.Rules, known.BypassCorsPreflight = nil, nil, false
	if proto.Size(known) > 0 {
		return tokenGuard{}, fmt.Errorf("simulation of the filter for tokens %s with %v", name, known)
	}
	out := tokenGuard{name, config, map[string][]jose.JSONWebKey{}}
	for id, p := range config.GetProviders() {
		known := proto.CloneOf(p)
		known.Issuer, known.Audiences, known.FromHeaders, known.FromParams, known.FromCookies = "", nil, nil, nil, nil
		known.Forward, known.ForwardPayloadHeader, known.PayloadInMetadata, known.ClaimToHeaders = false, "", "", nil
		known.NormalizePayloadInMetadata, known.ClearRouteCache = nil, false
		if p.GetLocalJwks().GetInlineString() != "" {
			known.JwksSourceSpecifier = nil
		}
		if proto.Size(known) > 0 {
			return tokenGuard{}, fmt.Errorf("simulation of the filter for tokens %s with a provider that has %v", name, known)
		}
		out.keys[id] = readKeys(p.GetLocalJwks().GetInlineString())
	}
	return out, nil
}

// readKeys returns the keys of a JSON Web Key Set, without what is no key.
func readKeys(text string) []jose.JSONWebKey {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	_ = json.Unmarshal([]byte(text), &set)
	var out []jose.JSONWebKey
	for _, raw := range set.Keys {
		var key jose.JSONWebKey
		if json.Unmarshal(raw, &key) == nil {
			out = append(out, key)
		}
	}
	return out
}

// pass implements guard.
func (g tokenGuard) pass(a *attributes, result *Result) bool {
	if g.config.GetBypassCorsPreflight() && isPreflight(a.request) {
		return true
	}
	path, _, _ := strings.Cut(a.request.Path, "?")
	for _, rule := range g.config.GetRules() {
		matched, err := matches(rule.GetMatch(), path, a.request)
		if err == nil && matched {
			err = g.require(rule.GetRequires(), a, result)
		}
		if err != nil {
			result.Err = fmt.Errorf("filter %s: %w", g.name, err)
		}
		if err != nil || matched {
			return err == nil && result.Token == nil
		}
	}
	return true
}

// require verifies the tokens of a request. What is verified changes the request.
func (g tokenGuard) require(r *jwtv3.JwtRequirement, a *attributes, result *Result) error {
	for _, p := range g.config.GetProviders() {
		for _, header := range outputs(p) { // nobody but a token sets it
			a.request = a.request.withHeader(header, "")
		}
	}
	v := verification{tokenGuard: g, a: a}
	fault, err := v.require(r, nil)
	if err == nil && fault != (tokenFault{}) {
		result.Token = &TokenRefusal{g.name, g.config.GetProviders()[fault.provider].GetIssuer(), fault.reason}
		result.Status, result.Body = result.Token.status(), fault.reason
	}
	return err
}

// tokenFault is why a requirement is not met; the zero value is none.
type tokenFault struct{ reason, provider string }

// verification verifies the tokens of one request.
type verification struct {
	tokenGuard
	a *attributes
}

// require checks a requirement. siblings are the providers of its alternatives, nil for all.
// https://github.com/envoyproxy/envoy/blob/main/source/extensions/filters/http/jwt_authn/verifier.cc
func (v verification) require(r *jwtv3.JwtRequirement, siblings []string) (tokenFault, error) {
	switch r := r.GetRequiresType().(type) {
	case *jwtv3.JwtRequirement_ProviderName:
		return v.tokens([]string{r.ProviderName}, tokenFault{tokenMissing, r.ProviderName}), nil
	case *jwtv3.JwtRequirement_AllowMissing:
		if siblings == nil {
			siblings = slices.Sorted(maps.Keys(v.config.GetProviders()))
		}
		return v.tokens(siblings, tokenFault{}), nil
	case *jwtv3.JwtRequirement_RequiresAll:
		for _, one := range r.RequiresAll.GetRequirements() {
			if fault, err := v.require(one, nil); err != nil || fault != (tokenFault{}) {
				return fault, err
			}
		}
		return tokenFault{}, nil
	case *jwtv3.JwtRequirement_RequiresAny:
		return v.any(r.RequiresAny.GetRequirements())
	}
	return tokenFault{}, fmt.Errorf("simulation of the requirement %v", r)
}

// weight says how much a fault says: a token may be missing because it is elsewhere, and unknown
// because it is for another provider.
func (f tokenFault) weight() int {
	switch f.reason {
	case "":
		return 0
	case tokenMissing:
		return 1
	case tokenIssuer:
		return 2
	}
	return 3
}

// any checks alternatives. The fault that says most counts, of equal ones the last.
func (v verification) any(alternatives []*jwtv3.JwtRequirement) (tokenFault, error) {
	var siblings []string
	for _, one := range alternatives {
		if name := one.GetProviderName(); name != "" {
			siblings = append(siblings, name)
		}
	}
	var worst tokenFault
	for _, one := range alternatives {
		fault, err := v.require(one, siblings)
		if err != nil || fault == (tokenFault{}) {
			return fault, err
		}
		if fault.weight() >= worst.weight() {
			worst = fault
		}
	}
	return worst, nil
}

// tokens verifies the tokens where providers look for theirs, all of which must be good. A
// single provider has its own tokens alone.
func (v verification) tokens(names []string, missing tokenFault) tokenFault {
	var providers []*jwtv3.JwtProvider
	for _, name := range names {
		providers = append(providers, v.config.GetProviders()[name])
	}
	tokens := tokensIn(v.a.request, providers)
	if len(tokens) == 0 {
		return missing
	}
	for _, t := range slices.Backward(tokens) {
		if fault := v.token(t, names); fault != (tokenFault{}) {
			return fault
		}
	}
	return tokenFault{}
}

// outputs are the headers that a provider sets.
func outputs(p *jwtv3.JwtProvider) []string {
	var out []string
	if name := p.GetForwardPayloadHeader(); name != "" {
		out = append(out, name)
	}
	for _, c := range p.GetClaimToHeaders() {
		out = append(out, c.GetHeaderName())
	}
	return out
}

// token verifies a token, and changes the request by what it says.
// https://github.com/envoyproxy/envoy/blob/main/source/extensions/filters/http/jwt_authn/authenticator.cc
func (v verification) token(f found, names []string) tokenFault {
	t, reason := readToken(f.text)
	if reason != "" {
		return tokenFault{reason, ""}
	}
	i := slices.IndexFunc(names, func(name string) bool {
		issuer := v.config.GetProviders()[name].GetIssuer()
		return issuer == "" || issuer == t.issuer
	})
	if i < 0 || !slices.ContainsFunc(f.providers, func(p *jwtv3.JwtProvider) bool { return p.GetIssuer() == "" || p.GetIssuer() == t.issuer }) {
		return tokenFault{tokenIssuer, ""}
	}
	name := names[i]
	provider := v.config.GetProviders()[name]
	if reason = t.timely(v.a.request.Time); reason == "" && !t.isFor(provider.GetAudiences()) {
		reason = tokenAudience
	}
	if reason == "" {
		reason = t.verify(v.keys[name])
	}
	if reason != "" {
		return tokenFault{reason, name}
	}
	v.accept(f.place, t, provider)
	return tokenFault{}
}

// accept changes the request by what a good token says.
func (v verification) accept(at place, t token, p *jwtv3.JwtProvider) {
	r := v.a.request
	if name := p.GetForwardPayloadHeader(); name != "" {
		r = r.withHeader(name, t.payload)
	}
	for _, c := range p.GetClaimToHeaders() {
		if value := headerOf(t.claims, c.GetClaimName()); value != "" {
			r = r.withHeader(c.GetHeaderName(), value)
		}
	}
	if !p.GetForward() {
		r = r.without(at)
	}
	if key := p.GetPayloadInMetadata(); key != "" {
		r = r.withMetadata(rbac.TokenMetadata, key, normalized(t.claims, p.GetNormalizePayloadInMetadata().GetSpaceDelimitedClaims()))
	}
	if v.a.request = r; p.GetClearRouteCache() {
		v.a.routed = r
	}
}

// withMetadata returns the request with a value of dynamic metadata.
func (r Request) withMetadata(filter, key string, value any) Request {
	of := maps.Clone(r.Metadata[filter])
	if of == nil {
		of = map[string]any{}
	}
	of[key] = value
	r.Metadata = maps.Clone(r.Metadata)
	if r.Metadata == nil {
		r.Metadata = map[string]map[string]any{}
	}
	r.Metadata[filter] = of
	return r
}

// normalized makes lists of claims that are words with spaces between them.
func normalized(claims map[string]any, words []string) map[string]any {
	out := maps.Clone(claims)
	for _, name := range words {
		if text, ok := out[name].(string); ok {
			list := []any{}
			for word := range strings.FieldsSeq(text) {
				list = append(list, word)
			}
			out[name] = list
		}
	}
	return out
}

// headerOf returns a claim as a header has it. Dots lead into the claim.
func headerOf(claims map[string]any, name string) string {
	var value any = claims
	for part := range strings.SplitSeq(name, ".") {
		fields, _ := value.(map[string]any)
		value = fields[part]
	}
	switch value := value.(type) {
	case string:
		return value
	case float64:
		return strconv.FormatFloat(value, 'f', -1, 64)
	case bool:
		return strconv.FormatBool(value)
	case map[string]any, []any:
		text, _ := json.Marshal(value)
		return base64.StdEncoding.EncodeToString(text)
	}
	return ""
}

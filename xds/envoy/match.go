package envoy

import (
	"cmp"
	"slices"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/portolan-mesh/portolan/xds/envoy/rbac"
)

// MatchKind says how a string is compared.
type MatchKind int

// The kinds. The zero kind matches any value.
const (
	Any MatchKind = iota
	Exact
	Prefix
	// Regex is an RE2 expression for the whole string. "*", which is not a valid one,
	// counts as Any.
	Regex
)

// StringMatch compares a string. The zero value matches any string.
type StringMatch struct {
	Kind  MatchKind
	Value string
}

func (m StringMatch) any() bool { return m.Kind == Any || m.Kind == Regex && m.Value == "*" }

func (m StringMatch) matcher() *matcherv3.StringMatcher {
	switch m.Kind {
	case Prefix:
		return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: m.Value}}
	case Regex:
		return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_SafeRegex{SafeRegex: regex(m.Value)}}
	default:
		return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: m.Value}}
	}
}

func regex(expression string) *matcherv3.RegexMatcher {
	return &matcherv3.RegexMatcher{Regex: expression}
}

// NamedMatch compares the value of a header or query parameter. A missing value does
// not match, unless the match is inverted.
type NamedMatch struct {
	Name string
	StringMatch
	// Invert inverts the comparison, and also matches a missing header. It is only for
	// headers.
	Invert bool
}

// ClaimMatch compares a claim of the token of a request, which a filter has verified before. The
// claim is a string, or a list that has a matching string. A missing one does not match.
type ClaimMatch struct {
	Path []string // the names of the claim and of those in it
	StringMatch
	// Invert inverts the comparison, and also matches a missing claim.
	Invert bool
}

// matcher is as Istio's MetadataMatcherForJWTClaims.
func (m ClaimMatch) matcher() *matcherv3.MetadataMatcher {
	value := rbac.PresentValue()
	if !m.any() {
		one := rbac.Text(m.StringMatch.matcher())
		value = rbac.EitherValue(one, rbac.ListWith(one))
	}
	out := rbac.Claim(m.Path, value)
	out.Invert = m.Invert
	return out
}

// MatchOptions describe the requests that a route matches: all conditions must hold. The
// zero value matches every request.
//
// Envoy compares headers and query parameters in the order of their names.
type MatchOptions struct {
	Path StringMatch
	// WholeSegments says that a prefix of the path ends where a segment of the path does: /shop covers
	// /shop/cart and not /shopping.
	WholeSegments bool
	// IgnorePathCase applies to an exact path and to a prefix, not to a regex.
	IgnorePathCase                bool
	Headers, QueryParameters      []NamedMatch
	Claims                        []ClaimMatch
	Method, Authority, HTTPScheme *StringMatch
}

func (o MatchOptions) routeMatch() *routev3.RouteMatch {
	out := o.pathMatch()
	for _, h := range o.headers() {
		out.Headers = append(out.Headers, header(h))
	}
	for _, q := range byName(o.QueryParameters) {
		out.QueryParameters = append(out.QueryParameters, queryParameter(q))
	}
	for _, c := range o.Claims {
		out.DynamicMetadata = append(out.DynamicMetadata, c.matcher())
	}
	return out
}

func (o MatchOptions) pathMatch() *routev3.RouteMatch {
	out := &routev3.RouteMatch{}
	switch {
	case o.Path.any():
		out.PathSpecifier = &routev3.RouteMatch_Prefix{Prefix: "/"}
	case o.Path.Kind == Exact:
		out.PathSpecifier = &routev3.RouteMatch_Path{Path: o.Path.Value}
	case o.Path.Kind == Prefix && o.WholeSegments && o.Path.Value != "/":
		out.PathSpecifier = &routev3.RouteMatch_PathSeparatedPrefix{PathSeparatedPrefix: strings.TrimSuffix(o.Path.Value, "/")}
	case o.Path.Kind == Prefix:
		out.PathSpecifier = &routev3.RouteMatch_Prefix{Prefix: o.Path.Value}
	case o.Path.Kind == Regex:
		out.PathSpecifier = &routev3.RouteMatch_SafeRegex{SafeRegex: regex(o.Path.Value)}
	}
	if o.IgnorePathCase && o.Path.Kind != Regex {
		out.CaseSensitive = wrapperspb.Bool(false)
	}
	return out
}

// headers returns the header matches, ordered by name, then the pseudo headers.
func (o MatchOptions) headers() []NamedMatch {
	out := byName(o.Headers)
	for _, h := range []struct {
		name  string
		match *StringMatch
	}{{":method", o.Method}, {":authority", o.Authority}, {":scheme", o.HTTPScheme}} {
		if h.match != nil {
			out = append(out, NamedMatch{Name: h.name, StringMatch: *h.match})
		}
	}
	return out
}

// CatchAll says whether the only condition is a path that matches every request: prefix
// "/" or regex ".*".
func (o MatchOptions) CatchAll() bool {
	if len(o.Headers)+len(o.QueryParameters)+len(o.Claims) > 0 || o.Method != nil || o.Authority != nil || o.HTTPScheme != nil {
		return false
	}
	return o.Path.any() || o.Path == StringMatch{Prefix, "/"} || o.Path == StringMatch{Regex, ".*"}
}

func byName(in []NamedMatch) []NamedMatch {
	return slices.SortedStableFunc(slices.Values(in), func(a, b NamedMatch) int { return cmp.Compare(a.Name, b.Name) })
}

func header(m NamedMatch) *routev3.HeaderMatcher {
	out := &routev3.HeaderMatcher{Name: m.Name, InvertMatch: m.Invert}
	if m.any() {
		out.HeaderMatchSpecifier = &routev3.HeaderMatcher_PresentMatch{PresentMatch: true}
		return out
	}
	out.HeaderMatchSpecifier = &routev3.HeaderMatcher_StringMatch{StringMatch: m.matcher()}
	// By default a missing header never matches, inverted or not.
	out.TreatMissingHeaderAsEmpty = m.Invert
	return out
}

func queryParameter(m NamedMatch) *routev3.QueryParameterMatcher {
	out := &routev3.QueryParameterMatcher{Name: m.Name}
	if m.any() {
		out.QueryParameterMatchSpecifier = &routev3.QueryParameterMatcher_PresentMatch{PresentMatch: true}
	} else {
		out.QueryParameterMatchSpecifier = &routev3.QueryParameterMatcher_StringMatch{StringMatch: m.matcher()}
	}
	return out
}

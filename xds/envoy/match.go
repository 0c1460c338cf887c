package envoy

import (
	"cmp"
	"slices"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// MatchKind is how a string is compared.
type MatchKind int

// The kinds. The zero kind matches whatever is there.
const (
	Any MatchKind = iota
	Exact
	Prefix
	// PathPrefix is a prefix in whole segments of a path; only of paths.
	PathPrefix
	// Regex is an RE2 expression over the whole of the string. "*", which is
	// none, is Any.
	Regex
)

// StringMatch compares a string. The zero value matches any.
type StringMatch struct {
	Kind  MatchKind
	Value string
}

func (m StringMatch) any() bool { return m.Kind == Any || m.Kind == Regex && m.Value == "*" }

func (m StringMatch) matcher() *matcherv3.StringMatcher {
	switch m.Kind {
	case Prefix, PathPrefix:
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

// NamedMatch compares the value of a header or query parameter. A value that is
// not there does not match, unless the match is inverted.
type NamedMatch struct {
	Name string
	StringMatch
	// Invert matches what the comparison does not, a header that is missing
	// included; only of headers.
	Invert bool
}

// MatchOptions say which requests a route is for: those that match all of it.
// The zero value matches every request.
type MatchOptions struct {
	Path StringMatch
	// IgnorePathCase applies to an exact path and to a prefix, not to a regex.
	IgnorePathCase                bool
	Headers, QueryParameters      []NamedMatch
	Method, Authority, HTTPScheme *StringMatch
}

// Match makes the match of a route. Headers and query parameters are sorted by
// name.
func Match(o MatchOptions) *routev3.RouteMatch {
	out := &routev3.RouteMatch{}
	switch {
	case o.Path.any():
		out.PathSpecifier = &routev3.RouteMatch_Prefix{Prefix: "/"}
	case o.Path.Kind == Exact:
		out.PathSpecifier = &routev3.RouteMatch_Path{Path: o.Path.Value}
	case o.Path.Kind == PathPrefix:
		setPathPrefix(out, o.Path.Value)
	case o.Path.Kind == Prefix:
		out.PathSpecifier = &routev3.RouteMatch_Prefix{Prefix: o.Path.Value}
	case o.Path.Kind == Regex:
		out.PathSpecifier = &routev3.RouteMatch_SafeRegex{SafeRegex: regex(o.Path.Value)}
	}
	if o.IgnorePathCase && o.Path.Kind != Regex {
		out.CaseSensitive = wrapperspb.Bool(false)
	}
	for _, h := range byName(o.Headers) {
		out.Headers = append(out.Headers, header(h))
	}
	for _, h := range []struct {
		name  string
		match *StringMatch
	}{{":method", o.Method}, {":authority", o.Authority}, {":scheme", o.HTTPScheme}} {
		if h.match != nil {
			out.Headers = append(out.Headers, header(NamedMatch{Name: h.name, StringMatch: *h.match}))
		}
	}
	for _, q := range byName(o.QueryParameters) {
		out.QueryParameters = append(out.QueryParameters, queryParameter(q))
	}
	return out
}

// setPathPrefix sets Envoy's path_separated_prefix, which is refused with a "/" at
// its end; of "/" alone nothing would be left, and all paths begin so.
func setPathPrefix(m *routev3.RouteMatch, prefix string) {
	prefix = strings.TrimRight(prefix, "/")
	if prefix == "" {
		m.PathSpecifier = &routev3.RouteMatch_Prefix{Prefix: "/"}
		return
	}
	m.PathSpecifier = &routev3.RouteMatch_PathSeparatedPrefix{PathSeparatedPrefix: prefix}
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
	// Without this a header that is missing never matches, inverted or not.
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

// CatchAll says whether a match is for every request: prefix "/" or regex ".*",
// and nothing else.
func CatchAll(m *routev3.RouteMatch) bool {
	if len(m.GetHeaders()) > 0 || len(m.GetQueryParameters()) > 0 || len(m.GetDynamicMetadata()) > 0 {
		return false
	}
	switch p := m.GetPathSpecifier().(type) {
	case *routev3.RouteMatch_Prefix:
		return p.Prefix == "/"
	case *routev3.RouteMatch_SafeRegex:
		return p.SafeRegex.GetRegex() == ".*"
	}
	return false
}

package proxyless

import (
	"regexp"
	"slices"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"github.com/portolan-mesh/portolan/xds/envoy"
)

// matches are those which together match what a sidecar's match does, of calls of
// gRPC; none where it matches no such call.
func (p port) matches(from *routev3.RouteMatch) []*routev3.RouteMatch {
	if len(from.GetQueryParameters()) > 0 {
		return nil // a call has none
	}
	alternatives := [][]*routev3.HeaderMatcher{nil}
	for _, h := range from.GetHeaders() {
		if values, constant := p.constants(h.GetName()); constant {
			if !slices.ContainsFunc(values, func(value string) bool { return matchesValue(h, value) }) {
				return nil
			}
			continue
		}
		alternatives = combine(alternatives, translateHeader(h))
	}
	var out []*routev3.RouteMatch
	for _, headers := range alternatives {
		m := &routev3.RouteMatch{PathSpecifier: from.GetPathSpecifier(), CaseSensitive: from.GetCaseSensitive(), Headers: headers}
		if prefix := from.GetPathSeparatedPrefix(); prefix != "" {
			m.PathSpecifier = &routev3.RouteMatch_SafeRegex{
				SafeRegex: &matcherv3.RegexMatcher{Regex: regexp.QuoteMeta(prefix) + "(/.*)?"},
			}
		}
		out = append(out, m)
	}
	return out
}

// constants are what a call has in a header that a client cannot match, either of
// them; false for all other headers.
func (p port) constants(name string) ([]string, bool) {
	switch name {
	case ":method":
		return []string{"POST"}, true
	case ":scheme":
		return []string{"http"}, true
	case ":authority":
		return []string{p.host, envoy.HostPort(p.host, uint32(p.number))}, true
	}
	return nil, false
}

// matchesValue compares a header that is there.
func matchesValue(m *routev3.HeaderMatcher, value string) bool {
	matches := true
	switch s := m.GetStringMatch().GetMatchPattern().(type) {
	case *matcherv3.StringMatcher_Exact:
		matches = s.Exact == value
	case *matcherv3.StringMatcher_Prefix:
		matches = strings.HasPrefix(value, s.Prefix)
	case *matcherv3.StringMatcher_SafeRegex:
		expression, err := regexp.Compile("^(?:" + s.SafeRegex.GetRegex() + ")$")
		matches = err == nil && expression.MatchString(value)
	}
	return matches != m.GetInvertMatch()
}

// translateHeader is a matcher as gRPC reads it, or two of which one has to hold: a
// header that is missing matches no comparison there, inverted or not.
func translateHeader(m *routev3.HeaderMatcher) []*routev3.HeaderMatcher {
	name := strings.ToLower(m.GetName())
	compared := &routev3.HeaderMatcher{Name: name, HeaderMatchSpecifier: m.GetHeaderMatchSpecifier(), InvertMatch: m.GetInvertMatch()}
	if !m.GetInvertMatch() || m.GetStringMatch() == nil {
		return []*routev3.HeaderMatcher{compared}
	}
	missing := &routev3.HeaderMatcher{
		Name: name, HeaderMatchSpecifier: &routev3.HeaderMatcher_PresentMatch{PresentMatch: true}, InvertMatch: true,
	}
	return []*routev3.HeaderMatcher{missing, compared}
}

// combine adds one of several matchers to each list.
func combine(lists [][]*routev3.HeaderMatcher, either []*routev3.HeaderMatcher) [][]*routev3.HeaderMatcher {
	var out [][]*routev3.HeaderMatcher
	for _, list := range lists {
		for _, m := range either {
			out = append(out, append(slices.Clone(list), m))
		}
	}
	return out
}

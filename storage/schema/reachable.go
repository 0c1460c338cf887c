package schema

import (
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"
)

// checkReachable warns of routes after a route that matches every request, and of matches
// all of whose requests an earlier match takes.
func checkReachable(c checker, routes []*networking.HTTPRoute) {
	earlier := covering{}
	for i, r := range routes {
		at := c.index(i)
		for j, m := range r.GetMatch() {
			if by := earlier.coveredBy(m); by != "" {
				at.at("match").index(j).neverUsed("is never used: %s takes its requests", by)
			} else if r.GetDelegate() == nil {
				earlier.add(m, at.at("match").index(j))
			}
		}
		if r.GetDelegate() == nil && MatchesAll(r) && i < len(routes)-1 {
			c.index(i+1).neverUsed("and what follows are never used: %s takes every request", at.path())
			return
		}
	}
}

func (c checker) neverUsed(format string, args ...any) {
	c.report.warn(codeNeverUsed, c.path(), format, args...)
}

// MatchesAll says whether a route matches every request of every proxy.
func MatchesAll(r *networking.HTTPRoute) bool {
	return len(r.GetMatch()) == 0 || slices.ContainsFunc(r.GetMatch(), func(m *networking.HTTPMatchRequest) bool {
		anyPath := anyPrefix(m.GetUri()) || m.GetUri().GetRegex() == ".*"
		return anyPath && (m == nil || !anySet(m, "name", "uri", "ignoreUriCase", "statPrefix"))
	})
}

// anyPrefix says whether every path begins as a match says.
func anyPrefix(m *networking.StringMatch) bool {
	prefix, ok := m.GetMatchType().(*networking.StringMatch_Prefix)
	return m.GetMatchType() == nil || ok && (prefix.Prefix == "" || prefix.Prefix == "/")
}

// covering has the earlier matches of a VirtualService, by the path that they match.
type covering map[string][]placedMatch

type placedMatch struct {
	match *networking.HTTPMatchRequest
	at    checker
}

// maxCovering bounds how many matches of one path a match is compared with.
const maxCovering = 50

// A key of covering is one of these kinds of comparison, and the text to compare.
const (
	exactPath  = "="
	prefixPath = "^"
	regexPath  = "~"
)

func pathKey(m *networking.StringMatch) string {
	switch t := m.GetMatchType().(type) {
	case *networking.StringMatch_Exact:
		return exactPath + t.Exact
	case *networking.StringMatch_Regex:
		return regexPath + t.Regex
	}
	if anyPrefix(m) {
		return prefixPath
	}
	return prefixPath + m.GetPrefix()
}

func (s covering) add(m *networking.HTTPMatchRequest, at checker) {
	if key := pathKey(m.GetUri()); len(s[key]) < maxCovering {
		s[key] = append(s[key], placedMatch{m, at})
	}
}

// coveredBy returns the path of the first match that takes all requests of m, empty for none.
func (s covering) coveredBy(m *networking.HTTPMatchRequest) string {
	find := func(key string) string {
		for _, earlier := range s[key] {
			if coversMatch(earlier.match, m) {
				return earlier.at.path()
			}
		}
		return ""
	}
	key := pathKey(m.GetUri())
	if by := find(key); by != "" {
		return by
	}
	if by := find(prefixPath); by != "" || strings.HasPrefix(key, regexPath) {
		return by
	}
	prefixes := prefixPath + key[1:]
	for end := 2; end <= len(key); end++ {
		if by := find(prefixes[:end]); by != "" {
			return by
		}
	}
	return ""
}

// coversMatch says whether a takes all requests of b, given that a matches all paths of b.
func coversMatch(a, b *networking.HTTPMatchRequest) bool {
	same := func(a, b *networking.StringMatch) bool { return a.GetMatchType() == nil || proto.Equal(a, b) }
	within := func(a, b map[string]*networking.StringMatch) bool {
		for name, m := range a {
			if other, ok := b[name]; !ok || !proto.Equal(m, other) {
				return false
			}
		}
		return true
	}
	return (a.GetIgnoreUriCase() || !b.GetIgnoreUriCase()) && (a.GetPort() == 0 || a.GetPort() == b.GetPort()) &&
		same(a.GetMethod(), b.GetMethod()) && same(a.GetScheme(), b.GetScheme()) && same(a.GetAuthority(), b.GetAuthority()) &&
		within(a.GetHeaders(), b.GetHeaders()) && within(a.GetWithoutHeaders(), b.GetWithoutHeaders()) &&
		within(a.GetQueryParams(), b.GetQueryParams()) && coversSource(a, b)
}

// coversSource says whether a applies to all proxies that b applies to. A match with
// gateways ignores the source.
func coversSource(a, b *networking.HTTPMatchRequest) bool {
	if len(a.GetGateways()) > 0 || len(b.GetGateways()) > 0 {
		anywhere := len(a.GetGateways())+len(a.GetSourceLabels()) == 0 && a.GetSourceNamespace() == ""
		return anywhere || slices.Equal(a.GetGateways(), b.GetGateways())
	}
	return (a.GetSourceNamespace() == "" || a.GetSourceNamespace() == b.GetSourceNamespace()) &&
		(len(a.GetSourceLabels()) == 0 || maps.Equal(a.GetSourceLabels(), b.GetSourceLabels()))
}

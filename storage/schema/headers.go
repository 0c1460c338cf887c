package schema

import (
	"regexp"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"
)

// headerToken is an HTTP field name.
var headerToken = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")

// nameLength checks the length of a name that is the key of a map: keys in YAML cannot be
// longer, and Envoy accepts 1024 bytes for a query parameter.
func (c checker) nameLength(name string) {
	const limit = 1000
	if len(name) > limit {
		c.fail("is a name of %d bytes: %d is the limit", len(name), limit)
	}
}

func (c checker) headerName(name string) {
	c.nameLength(name)
	if !headerToken.MatchString(name) {
		c.fail("%q is not the name of an HTTP header", name)
	}
}

// matchedHeader checks the name of a header in a match, which may be a pseudo header.
func (c checker) matchedHeader(name string) {
	switch {
	case strings.HasPrefix(lower(name), claims):
		if _, ok := ClaimOf(name); !ok {
			c.fail("%q names no claim: write %s.NAME, or %s[NAME][NAME]", name, claims, claims)
		}
		c.nameLength(name)
	case slices.Contains([]string{":authority", ":method", ":path", ":scheme"}, name):
	default:
		c.headerName(name)
	}
}

// claims begins the name of a header that stands for a claim of a token.
const claims = "@request.auth.claims"

// ClaimOf returns the path of the claim that a header in a match of a VirtualService stands for.
// It is false for other headers. (Istio: jwt.ToRoutingClaim.)
func ClaimOf(header string) (path []string, ok bool) {
	if !strings.HasPrefix(lower(header), claims) {
		return nil, false
	}
	name := header[len(claims):]
	if rest, dots := strings.CutPrefix(name, "."); dots {
		path = strings.Split(rest, ".")
	} else if rest, brackets := strings.CutPrefix(name, "["); brackets {
		if rest, brackets = strings.CutSuffix(rest, "]"); brackets {
			path = strings.Split(rest, "][")
		}
	}
	return path, len(path) > 0 && !slices.Contains(path, "")
}

func (c checker) refuseClaims(matches map[string]*networking.StringMatch) {
	for _, name := range sortedKeys(matches) {
		if _, ok := ClaimOf(name); ok {
			c.key(name).fail(`is a claim of a token, which gateways alone route by: name gateways without "mesh"`)
		}
	}
}

// isAuthority says whether a header of a request is its host.
func isAuthority(name string) bool { return lower(name) == "host" || lower(name) == ":authority" }

func (c checker) headers(h *networking.Headers) {
	c.at("request").headerOperations(h.GetRequest(), true)
	c.at("response").headerOperations(h.GetResponse(), false)
}

func (c checker) headerOperations(o *networking.Headers_HeaderOperations, request bool) {
	c.at("set").headerValues(o.GetSet(), request)
	c.at("add").headerValues(o.GetAdd(), request)
	each(c.at("remove"), o.GetRemove(), func(c checker, name string) {
		if isAuthority(name) || strings.HasPrefix(name, ":") {
			c.fail("%q cannot be removed: every request has it", name)
			return
		}
		c.headerName(name)
	})
}

func (c checker) headerValues(values map[string]string, request bool) {
	for _, name := range sortedKeys(values) {
		c := c.key(name)
		switch {
		case request && isAuthority(name):
		case strings.HasPrefix(name, ":"):
			c.warn("is a pseudo header, which cannot be set: it has no effect")
		default:
			c.headerName(name)
		}
		c.failIf(format(values[name]))
		c.oneLine(values[name])
	}
}

// match checks how a part of a request is compared.
func (c checker) match(m *networking.StringMatch) {
	switch t := m.GetMatchType().(type) {
	case *networking.StringMatch_Prefix:
		if t.Prefix == "" {
			c.at("prefix").fail("is empty: leave the match out")
		}
	case *networking.StringMatch_Regex:
		if t.Regex == "" {
			c.at("regex").fail("is empty: leave the match out")
		}
		c.at("regex").regex(t.Regex)
	}
}

// wholeMatch checks the match of a part that every request has.
func (c checker) wholeMatch(m *networking.StringMatch) {
	if m != nil && m.GetMatchType() == nil {
		c.warn("is empty and matches every request: set one of exact, prefix, regex")
	}
	c.match(m)
}

// pathMatch checks the match of a path, whose prefix may be empty.
func (c checker) pathMatch(m *networking.StringMatch) {
	if prefix, ok := m.GetMatchType().(*networking.StringMatch_Prefix); ok && prefix.Prefix == "" {
		c.at("prefix").warn("is empty and matches every path: leave the match out")
		return
	}
	c.wholeMatch(m)
}

// matches checks the matches of headers or query parameters: an empty match and the regex
// "*" mean presence.
func (c checker) matches(matches map[string]*networking.StringMatch, name func(checker, string)) {
	for _, key := range sortedKeys(matches) {
		name(c.key(key), key)
		if matches[key].GetRegex() != "*" {
			c.key(key).match(matches[key])
		}
	}
}

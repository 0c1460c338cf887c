package schema

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"
)

var (
	// headerToken is an HTTP field name.
	headerToken = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")
	// formatCommand is what Envoy puts a value in the place of.
	formatCommand = regexp.MustCompile(`%%|%[A-Z0-9_]+(\([^)%]*\))?(:\d+)?%`)
)

// headerName checks the name of a header.
func (c checker) headerName(name string) {
	if !headerToken.MatchString(name) {
		c.fail("%q is not the name of an HTTP header", name)
	}
}

// matchedHeader checks the name of a header that is matched, pseudo headers
// among them.
func (c checker) matchedHeader(name string) {
	switch {
	case strings.HasPrefix(name, "@request.auth.claims"):
		c.fail("routing by the claims of a token is not served yet")
	case slices.Contains([]string{":authority", ":method", ":path", ":scheme"}, name):
	default:
		c.headerName(name)
	}
}

// isAuthority says whether a header of a request is its host.
func isAuthority(name string) bool { return lower(name) == "host" || name == ":authority" }

// headers checks operations on headers.
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
	for _, name := range slices.Sorted(maps.Keys(values)) {
		c := c.key(name)
		switch {
		case request && isAuthority(name):
		case strings.HasPrefix(name, ":"):
			c.warn("is a pseudo header, which cannot be set: it has no effect")
		default:
			c.headerName(name)
		}
		if strings.Contains(formatCommand.ReplaceAllString(values[name], ""), "%") {
			c.fail("has a %% that begins no command: write %%%% for the sign itself")
		}
		if strings.ContainsAny(values[name], "\x00\r\n") {
			c.fail("must be one line of text")
		}
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
		c.fail("is empty: set one of exact, prefix, regex")
	}
	c.match(m)
}

// matches checks the matches of headers or query parameters: an empty one and
// the regex "*" ask for presence.
func (c checker) matches(matches map[string]*networking.StringMatch, name func(checker, string)) {
	for _, key := range slices.Sorted(maps.Keys(matches)) {
		name(c.key(key), key)
		if matches[key].GetRegex() != "*" {
			c.key(key).match(matches[key])
		}
	}
}

package simulate

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
)

// normalizedPath returns a path, with its query, as a connection manager writes it before filters and
// routes see it; false if the manager refuses the request with 400.
// https://github.com/envoyproxy/envoy/blob/main/source/common/http/conn_manager_utility.cc
func normalizedPath(m *hcmv3.HttpConnectionManager, path string) (string, bool) {
	if strings.Contains(path, "#") {
		return "", false
	}
	path, query, hasQuery := strings.Cut(path, "?")
	if m.GetPathWithEscapedSlashesAction() == hcmv3.HttpConnectionManager_UNESCAPE_AND_FORWARD {
		path = strings.NewReplacer("%2F", "/", "%2f", "/", "%5C", `\`, "%5c", `\`).Replace(path)
	}
	if m.GetNormalizePath().GetValue() {
		var ok bool
		if path, ok = canonicalPath(path); !ok {
			return "", false
		}
	}
	if m.GetMergeSlashes() {
		path = mergedSlashes(path)
	}
	if hasQuery {
		path += "?" + query
	}
	return path, true
}

// isHTTP1 says whether a request is of HTTP/1.1, whose parser refuses bytes that are no ASCII.
func (r Request) isHTTP1() bool {
	return r.Protocol == HTTP || r.Protocol == HTTPS && !slices.ContainsFunc(r.ALPN, func(p string) bool { return strings.HasSuffix(p, "h2") })
}

func ascii(text string) bool {
	return strings.IndexFunc(text, func(c rune) bool { return c >= utf8.RuneSelf }) < 0
}

// checkPathOptions fails on what the simulation does not know of paths.
func checkPathOptions(m *hcmv3.HttpConnectionManager) error {
	switch action := m.GetPathWithEscapedSlashesAction(); action {
	case hcmv3.HttpConnectionManager_IMPLEMENTATION_SPECIFIC_DEFAULT, hcmv3.HttpConnectionManager_KEEP_UNCHANGED, hcmv3.HttpConnectionManager_UNESCAPE_AND_FORWARD:
	default:
		return fmt.Errorf("simulation of path_with_escaped_slashes_action %s", action)
	}
	if m.GetPathNormalizationOptions() != nil {
		return fmt.Errorf("simulation of path_normalization_options %v", m.GetPathNormalizationOptions())
	}
	return nil
}

// mergedSlashes replaces each run of slashes by one. As in Envoy, a path of slashes alone becomes
// two of them.
func mergedSlashes(path string) string {
	if !strings.Contains(path, "//") {
		return path
	}
	out := strings.Join(strings.FieldsFunc(path, func(c rune) bool { return c == '/' }), "/")
	if strings.HasPrefix(path, "/") {
		out = "/" + out
	}
	if strings.HasSuffix(path, "/") {
		out += "/"
	}
	return out
}

// canonicalPath writes a path as browsers do: without dot segments, with slashes in the place of
// backslashes, and with escapes only where they are needed; false for a path with NUL.
// https://url.spec.whatwg.org/#path-state
func canonicalPath(path string) (string, bool) {
	c := canonizer{in: path, percent: -1}
	if !c.slash(0) {
		c.out = append(c.out, '/')
	}
	for c.at < len(path) {
		if !c.segment() && !c.escape() {
			c.char()
		}
	}
	return string(c.out), !c.nul
}

// canonizer writes a canonical path.
type canonizer struct {
	in  string
	at  int // the next byte of in
	out []byte
	// percent is where the last "%" of out is that begins no escape in the input; negative for none.
	percent int
	nul     bool
}

func (c *canonizer) slash(at int) bool {
	return at < len(c.in) && strings.IndexByte(`/\`, c.in[at]) >= 0
}

// ends says whether a segment ends at a byte of the input.
func (c *canonizer) ends(at int) bool { return at == len(c.in) || c.slash(at) }

// dot returns the length of the dot at a byte of the input, 0 for none.
func (c *canonizer) dot(at int) int {
	rest := c.in[at:]
	switch {
	case strings.HasPrefix(rest, "."):
		return 1
	case len(rest) >= 3 && strings.EqualFold(rest[:3], "%2e"):
		return 3
	}
	return 0
}

// segment takes a dot, and the whole segment if it is "." or "..". It says whether there was one.
func (c *canonizer) segment() bool {
	first := c.dot(c.at)
	if first == 0 {
		return false
	}
	second := 0
	if c.at += first; c.at < len(c.in) {
		second = c.dot(c.at)
	}
	switch begins := c.out[len(c.out)-1] == '/'; {
	case begins && c.ends(c.at):
		c.at++
	case begins && second > 0 && c.ends(c.at+second):
		c.at += second + 1
		c.up()
	default:
		c.out = append(c.out, '.')
	}
	c.at = min(c.at, len(c.in))
	return true
}

// up removes the last segment of the output.
func (c *canonizer) up() {
	if parent := strings.LastIndexByte(string(c.out[:len(c.out)-1]), '/'); parent >= 0 {
		c.out = c.out[:parent+1]
	}
	if c.percent >= len(c.out) {
		c.percent = -1
	}
}

// escape takes "%", and the two digits behind it if it begins an escape. It says whether there
// was one.
func (c *canonizer) escape() bool {
	if c.in[c.at] != '%' {
		return false
	}
	value, ok := escaped(c.in[c.at:])
	if !ok {
		c.percent, c.out = len(c.out), append(c.out, '%')
		c.at++
		return true
	}
	escape := c.in[c.at : c.at+3]
	c.at += 3
	if !unreserved(value) {
		c.nul = c.nul || value == 0
		c.out = append(c.out, escape...)
		return true
	}
	c.out = append(c.out, value)
	c.keepLiteral()
	return true
}

// keepLiteral escapes a "%" that began no escape in the input and would begin one in the output,
// since digits behind it were unescaped.
func (c *canonizer) keepLiteral() {
	if c.percent < 0 || len(c.out)-c.percent > 3 {
		return
	}
	behind := string(c.out[c.percent:])
	if len(behind) == 2 && c.at < len(c.in) {
		behind += c.in[c.at : c.at+1]
	}
	if _, ok := escaped(behind); ok {
		c.out = append(append(c.out[:c.percent:c.percent], "%25"...), c.out[c.percent+1:]...)
	}
}

// char takes a byte that is neither a dot nor part of an escape.
func (c *canonizer) char() {
	switch b := c.in[c.at]; {
	case b == '\\':
		c.out = append(c.out, '/')
	case b <= ' ' || b >= 0x7f || strings.IndexByte("\"<>^`{|}", b) >= 0:
		c.out = fmt.Appendf(c.out, "%%%02X", b)
	default:
		c.out = append(c.out, b)
	}
	c.at++
}

// escaped returns the byte that an escape at the beginning of a text stands for.
func escaped(text string) (byte, bool) {
	var value byte
	if len(text) < 3 {
		return 0, false
	}
	for _, digit := range []byte(text[1:3]) {
		n := strings.IndexByte("0123456789abcdef", digit|0x20)
		if n < 0 || digit < '0' {
			return 0, false
		}
		value = value<<4 | byte(n)
	}
	return value, true
}

// unreserved are the characters that need no escape (RFC 3986, section 2.3).
func unreserved(b byte) bool {
	return b >= '0' && b <= '9' || b|0x20 >= 'a' && b|0x20 <= 'z' || strings.IndexByte("-_~", b) >= 0
}

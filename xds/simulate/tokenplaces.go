package simulate

import (
	"cmp"
	"net/url"
	"slices"
	"strings"

	jwtv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/jwt_authn/v3"
)

// place is where a token may be: in a header behind a prefix, in a parameter or in a cookie.
type place struct{ header, prefix, param, cookie string }

// found is a token in a request, with the providers that look for theirs there.
type found struct {
	place
	text      string
	providers []*jwtv3.JwtProvider
	// believed: the token needs no signature.
	believed bool
}

func placesOf(p *jwtv3.JwtProvider) []place {
	var out []place
	for _, h := range p.GetFromHeaders() {
		out = append(out, place{header: strings.ToLower(h.GetName()), prefix: h.GetValuePrefix()})
	}
	for _, name := range p.GetFromParams() {
		out = append(out, place{param: name})
	}
	for _, name := range p.GetFromCookies() {
		out = append(out, place{cookie: name})
	}
	if len(out) == 0 {
		return []place{{header: "authorization", prefix: "Bearer "}, {param: "access_token"}}
	}
	return out
}

// compare orders places as Envoy looks at them: headers, parameters, cookies.
func (p place) compare(o place) int {
	kind := func(p place) int { return strings.Compare(p.param, "") + 2*strings.Compare(p.cookie, "") }
	return cmp.Or(kind(p)-kind(o), strings.Compare(p.header+p.prefix, o.header+o.prefix), strings.Compare(p.param+p.cookie, o.param+o.cookie))
}

// in returns the text at a place of a request.
func (p place) in(r Request) (string, bool) {
	switch {
	case p.header != "":
		return headerToken(r, p.header, p.prefix)
	case p.param != "":
		return parameter(r, p.param)
	}
	return cookie(r, p.cookie)
}

// tokensIn returns the tokens that providers look for in a request.
// https://github.com/envoyproxy/envoy/blob/main/source/extensions/filters/http/jwt_authn/extractor.cc
func tokensIn(r Request, providers []*jwtv3.JwtProvider) []found {
	var out []found
	for _, provider := range providers {
		for _, at := range placesOf(provider) {
			text, ok := at.in(r)
			if !ok {
				continue
			}
			i := slices.IndexFunc(out, func(f found) bool { return f.place == at })
			if i < 0 {
				i, out = len(out), append(out, found{place: at, text: text})
			}
			out[i].providers = append(out[i].providers, provider)
		}
	}
	slices.SortFunc(out, func(a, b found) int { return a.compare(b.place) })
	return out
}

// headerToken returns the token behind a prefix in a header.
func headerToken(r Request, name, prefix string) (string, bool) {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_."
	value, ok := requestHeader(r, name)
	if !ok || prefix == "" {
		return value, ok
	}
	_, rest, ok := strings.Cut(value, prefix)
	begin := strings.IndexAny(rest, letters)
	if begin < 0 {
		return value, ok
	}
	rest = rest[begin:]
	if end := strings.IndexFunc(rest, func(c rune) bool { return !strings.ContainsRune(letters, c) }); end >= 0 {
		rest = rest[:end]
	}
	return rest, ok
}

func parameter(r Request, name string) (string, bool) {
	_, raw, _ := strings.Cut(r.Path, "?")
	query, _ := url.ParseQuery(raw)
	return query.Get(name), query.Has(name)
}

func cookie(r Request, name string) (string, bool) {
	value, _ := requestHeader(r, "cookie")
	for one := range strings.SplitSeq(value, ";") {
		key, value, ok := strings.Cut(strings.TrimSpace(one), "=")
		if ok && key == name {
			return strings.Trim(value, `"`), true
		}
	}
	return "", false
}

// without returns the request without a token, which stays if it is in a cookie.
func (r Request) without(t place) Request {
	if t.header != "" {
		return r.withHeader(t.header, "")
	}
	if t.param == "" {
		return r
	}
	path, raw, _ := strings.Cut(r.Path, "?")
	query, _ := url.ParseQuery(raw)
	query.Del(t.param)
	if r.Path = path; len(query) > 0 {
		r.Path += "?" + strings.ReplaceAll(query.Encode(), "+", "%20")
	}
	return r
}

// withHeader returns the request with another value of a header, without the header if the value
// is empty.
func (r Request) withHeader(name, value string) Request {
	headers := map[string]string{}
	for k, v := range r.Headers {
		if !strings.EqualFold(k, name) {
			headers[k] = v
		}
	}
	if value != "" {
		headers[strings.ToLower(name)] = value
	}
	r.Headers = headers
	return r
}

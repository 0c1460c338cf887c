package schema

import (
	"slices"

	networking "istio.io/api/networking/v1alpha3"
)

func checkHTTPMatch(c checker, m *networking.HTTPMatchRequest) {
	c.at("uri").pathMatch(m.GetUri())
	c.at("scheme").wholeMatch(m.GetScheme())
	c.at("method").wholeMatch(m.GetMethod())
	c.at("authority").wholeMatch(m.GetAuthority())
	c.at("headers").matches(m.GetHeaders(), checker.matchedHeader)
	c.at("withoutHeaders").matches(m.GetWithoutHeaders(), checker.matchedHeader)
	c.at("queryParams").matches(m.GetQueryParams(), func(c checker, name string) {
		if name == "" {
			c.fail("needs the name of a parameter")
		}
		c.nameLength(name)
	})
	checkRouteMatch(c, m)
	if m.GetSourceNamespace() != "" {
		c.at("sourceNamespace").namespace(m.GetSourceNamespace())
	}
}

// The matches of a delegate may get their paths from the route that delegates to it.
func checkRedirect(c checker, route *networking.HTTPRoute, delegate bool) {
	r := route.GetRedirect()
	if r == nil {
		return
	}
	if !anySet(r, "redirectCode") {
		c.fail("leads back to where it came from: set uri, prefixRewrite, authority, scheme or a port")
	}
	if code := r.RedirectCode; code != 0 && !slices.Contains([]uint32{301, 302, 303, 307, 308}, code) {
		c.at("redirectCode").fail("must be one of 301, 302, 303, 307, 308, is %d", code)
	}
	c.at("scheme").oneOf(r.Scheme, "http", "https")
	c.at("uri").oneLine(r.Uri)
	c.at("authority").oneLine(r.Authority)
	c.at("prefixRewrite").oneLine(r.PrefixRewrite)
	if port, ok := r.RedirectPort.(*networking.HTTPRedirect_Port); ok {
		c.at("port").optionalPort(port.Port)
		if port.Port == 0 {
			c.at("port").warn("is 0 and has no effect")
		}
	}
	if r.PrefixRewrite == "" {
		return
	}
	if r.Uri != "" {
		c.at("prefixRewrite").fail("excludes uri: set one of the two")
	}
	if len(route.Match) == 0 && !delegate || slices.ContainsFunc(route.Match, func(m *networking.HTTPMatchRequest) bool {
		_, ok := m.GetUri().GetMatchType().(*networking.StringMatch_Prefix)
		return !ok && (m.GetUri() != nil || !delegate)
	}) {
		c.at("prefixRewrite").fail("needs a uri prefix in every match of the route")
	}
}

func checkDirectResponse(c checker, r *networking.HTTPDirectResponse) {
	if r == nil {
		return
	}
	if r.Status < 200 || r.Status > 599 {
		c.at("status").fail("must be from 200 to 599, is %d", r.Status)
	}
	const limit = 1 << 20
	if size := len(r.GetBody().GetString_()) + len(r.GetBody().GetBytes()); size > limit {
		c.at("body").fail("has %d bytes: %d is the limit", size, limit)
	}
}

func checkRewrite(c checker, route *networking.HTTPRoute) {
	r := route.GetRewrite()
	at := c.at("rewrite")
	if r != nil && !anySet(r) {
		at.fail("is empty: set uri, authority or uriRegexRewrite")
	}
	if regex := r.GetUriRegexRewrite(); regex != nil {
		if r.Uri != "" {
			at.at("uriRegexRewrite").fail("excludes uri: set one of the two")
		}
		if regex.Match == "" {
			at.at("uriRegexRewrite", "match").fail("is missing")
		}
		if regex.Rewrite == "" {
			at.at("uriRegexRewrite", "rewrite").fail("is missing")
		}
		at.at("uriRegexRewrite", "match").regex(regex.Match)
		at.at("uriRegexRewrite", "rewrite").oneLine(regex.Rewrite)
	}
	at.at("uri").oneLine(r.GetUri())
	at.at("authority").oneLine(r.GetAuthority())
	checkAuthority(c, route)
}

// checkAuthority checks that a route sets the host of a request once.
func checkAuthority(c checker, route *networking.HTTPRoute) {
	first := ""
	report := func(c checker) {
		if first != "" {
			c.fail("sets the host of the request, and so does %s: set it once", first)
			return
		}
		first = c.path()
	}
	if route.GetRewrite().GetAuthority() != "" {
		report(c.at("rewrite", "authority"))
	}
	at, operations := c.at("headers", "request"), route.GetHeaders().GetRequest()
	for _, to := range []struct {
		at     checker
		values map[string]string
	}{{at.at("set"), operations.GetSet()}, {at.at("add"), operations.GetAdd()}} {
		for _, name := range sortedKeys(to.values) {
			if isAuthority(name) {
				report(to.at.key(name))
			}
		}
	}
}

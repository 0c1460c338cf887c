package schema

import (
	"net/http"
	"slices"
	"strings"
	"time"

	networking "istio.io/api/networking/v1alpha3"
)

// corsMethods are the methods that a policy may allow.
func corsMethods() []string {
	return []string{
		http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodConnect, http.MethodOptions, http.MethodTrace, "*",
	}
}

// checkCORS checks the policy of a route for requests of other origins.
func checkCORS(c checker, route *networking.HTTPRoute) {
	p := route.GetCorsPolicy()
	if p == nil {
		return
	}
	each(c.at("allowOrigins"), p.GetAllowOrigins(), checkOrigin)
	each(c.at("allowMethods"), p.GetAllowMethods(), func(c checker, method string) {
		if !slices.Contains(corsMethods(), method) {
			c.fail("%q is not a method: use %s", method, strings.Join(corsMethods(), ", "))
		}
	})
	each(c.at("allowHeaders"), p.GetAllowHeaders(), checker.headerName)
	each(c.at("exposeHeaders"), p.GetExposeHeaders(), checker.headerName)
	c.at("maxAge").duration(p.GetMaxAge())
	if age := p.GetMaxAge(); age.IsValid() && age.AsDuration()%time.Second != 0 {
		c.at("maxAge").fail("must be whole seconds, is %s", age.AsDuration())
	}
	//lint:ignore SA1019 Istio takes the deprecated field still.
	older := p.GetAllowOrigin()
	each(c.at("allowOrigin"), older, func(c checker, origin string) {
		c.oneLine(origin)
		c.origin(origin)
	})
	switch {
	case len(route.GetRoute()) == 0 && route.GetDelegate() == nil:
		c.warn("has no effect: only requests that go to a destination have a policy")
	case len(p.GetAllowOrigins())+len(older) == 0:
		c.warn("allows no origin and has no effect: set allowOrigins")
	case len(p.GetAllowOrigins()) > 0 && len(older) > 0:
		c.at("allowOrigin").warn("has no effect: allowOrigins outranks it")
	}
}

// checkOrigin checks how an origin is compared.
func checkOrigin(c checker, m *networking.StringMatch) {
	if m.GetExact()+m.GetPrefix()+m.GetRegex() == "" {
		c.fail("is empty: set one of exact, prefix, regex")
		return
	}
	c.match(m)
	switch prefix := m.GetPrefix(); {
	case m.GetExact() != "":
		c.at("exact").origin(m.GetExact())
	case prefix != "" && !strings.Contains(prefix, "://") && !strings.HasPrefix("https://", prefix) && !strings.HasPrefix("http://", prefix):
		c.at("prefix").warn("%q begins no origin, which is SCHEME://HOST, such as https://%s: no request is allowed by it", prefix, prefix)
	}
}

// origin warns of an origin that no browser sends.
func (c checker) origin(origin string) {
	_, rest, hasScheme := strings.Cut(origin, "://")
	switch {
	case origin == "" || origin == "*" || origin == "null":
	case !hasScheme:
		c.warn("%q is no origin, which is SCHEME://HOST or SCHEME://HOST:PORT, such as https://%s: no request is allowed by it", origin, origin)
	case strings.Contains(rest, "/"):
		c.warn("%q has a path, and an origin has none: no request is allowed by it", origin)
	}
}

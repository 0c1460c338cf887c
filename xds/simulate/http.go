package simulate

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
)

// http runs a request through the filters that judge it, and routes it: virtual host, route, action.
func (p *Proxy) http(manager *hcmv3.HttpConnectionManager, a attributes, result *Result) {
	r := a.request
	config := manager.GetRouteConfig()
	if rds := manager.GetRds(); rds != nil {
		result.RouteConfig = rds.GetRouteConfigName()
		if config = p.routes[rds.GetRouteConfigName()]; config == nil {
			result.Err = fmt.Errorf("%w %s", ErrNoRouteConfig, rds.GetRouteConfigName())
			return
		}
	}
	with, err := p.filtersOf(manager, result)
	if err != nil {
		result.Err = err
		return
	}
	r, ok := received(manager, r, result)
	if !ok {
		return
	}
	if a.request, a.routed = r, r; !a.pass(with.guards, result) {
		return
	}
	r = a.routed
	vhost := virtualHost(config, r.Host)
	if vhost == nil {
		result.Err = ErrNoVirtualHost
		return
	}
	result.VirtualHost = vhost.GetName()
	path, _, _ := strings.Cut(r.Path, "?")
	if vhost.GetRequireTls() == routev3.VirtualHost_ALL && r.Protocol != HTTPS {
		result.Status, result.Location = 301, "https://"+hostOnly(r.Host)+r.Path
		return
	}
	for _, route := range vhost.GetRoutes() {
		matched, err := matches(route.GetMatch(), path, r)
		if err != nil {
			result.Err = fmt.Errorf("virtual host %s, route %s: %w", vhost.GetName(), route.GetName(), err)
			return
		}
		if matched {
			route = withRetries(route, vhost)
			result.Route, result.Action = route.GetName(), route
			p.filter(with, route, a.request, result)
			return
		}
	}
	result.Err = ErrNoRoute
}

// headerSize is the size in bytes of the headers of a request.
func headerSize(r Request) int {
	size := len(r.Method) + len(r.Path) + len(r.Host)
	for name, value := range r.Headers {
		size += len(name) + len(value)
	}
	return size
}

// maxHeaders is the size in bytes of the headers that a proxy takes.
func maxHeaders(manager *hcmv3.HttpConnectionManager) int {
	const usual = 60 // of Envoy, in KiB
	return int(cmp.Or(manager.GetMaxRequestHeadersKb().GetValue(), usual)) << 10
}

// withRetries returns a route with the retry policy of its virtual host, if the route forwards
// and has none of its own.
func withRetries(route *routev3.Route, of *routev3.VirtualHost) *routev3.Route {
	if of.GetRetryPolicy() == nil || route.GetRoute() == nil || route.GetRoute().GetRetryPolicy() != nil {
		return route
	}
	route = proto.CloneOf(route)
	route.GetRoute().RetryPolicy = of.GetRetryPolicy()
	return route
}

// filter runs a request through the filters, the router last.
func (p *Proxy) filter(with filters, route *routev3.Route, r Request, result *Result) {
	if with.faults {
		result.Fault, result.Err = faultOf(route, with.passedOver)
	}
	answered := result.Fault.AbortsAll()
	if with.cors && result.Err == nil && !answered {
		if answered, result.Err = answersPreflight(route, r); answered {
			result.Status = http.StatusOK
		}
	}
	if result.Err == nil && !answered {
		p.act(route, r, result)
	}
	if with.resolves {
		p.resolve(cmp.Or(result.Host, r.Host), result)
	}
}

// virtualHost finds the host with the most specific domain: exact, then the longest
// suffix, then the longest prefix, then "*".
func virtualHost(config *routev3.RouteConfiguration, host string) *routev3.VirtualHost {
	if config.GetIgnorePortInHostMatching() {
		host = hostOnly(host)
	}
	host = strings.ToLower(host)
	var found *routev3.VirtualHost
	best := -1
	for _, v := range config.GetVirtualHosts() {
		for _, domain := range v.GetDomains() {
			if score := domainScore(strings.ToLower(domain), host); score > best {
				found, best = v, score
			}
		}
	}
	return found
}

// domainScore ranks how specifically a domain covers a host, -1 if it does not.
func domainScore(domain, host string) int {
	const exact, suffix, prefix = 3_000_000, 2_000_000, 1_000_000
	switch {
	case domain == "*":
		return 0
	case domain == host:
		return exact
	case strings.HasPrefix(domain, "*") && len(host) >= len(domain) && strings.HasSuffix(host, domain[1:]):
		return suffix + len(domain)
	case strings.HasSuffix(domain, "*") && len(host) >= len(domain) && strings.HasPrefix(host, domain[:len(domain)-1]):
		return prefix + len(domain)
	}
	return -1
}

func hostOnly(host string) string {
	if i := strings.LastIndexByte(host, ':'); i >= 0 && !strings.HasSuffix(host, "]") {
		return host[:i]
	}
	return host
}

// withoutDot removes a dot at the end of a host's name.
func withoutDot(host string) string {
	name := hostOnly(host)
	return strings.TrimSuffix(name, ".") + host[len(name):]
}

// matches fails on unknown matchers.
func matches(m *routev3.RouteMatch, path string, r Request) (bool, error) {
	known := proto.CloneOf(m)
	known.PathSpecifier, known.CaseSensitive, known.Headers, known.QueryParameters, known.DynamicMetadata = nil, nil, nil, nil, nil
	if proto.Size(known) > 0 {
		return false, fmt.Errorf("simulation of the route match %v", m)
	}
	ok, err := pathMatches(m, path)
	if err != nil || !ok {
		return false, err
	}
	for _, h := range m.GetHeaders() {
		if ok, err := headerMatches(h, r); err != nil || !ok {
			return false, err
		}
	}
	for _, d := range m.GetDynamicMetadata() {
		if ok, err := r.metadataMatches(d); err != nil || !ok {
			return false, err
		}
	}
	_, rawQuery, _ := strings.Cut(r.Path, "?")
	query, err := url.ParseQuery(rawQuery)
	if err != nil {
		return false, err
	}
	for _, q := range m.GetQueryParameters() {
		if ok, err := parameterMatches(q, query); err != nil || !ok {
			return false, err
		}
	}
	return true, nil
}

func pathMatches(m *routev3.RouteMatch, path string) (bool, error) {
	fold := m.GetCaseSensitive() != nil && !m.GetCaseSensitive().GetValue()
	lower := func(s string) string {
		if fold {
			return strings.ToLower(s)
		}
		return s
	}
	switch p := m.GetPathSpecifier().(type) {
	case *routev3.RouteMatch_Path:
		return lower(path) == lower(p.Path), nil
	case *routev3.RouteMatch_Prefix:
		return strings.HasPrefix(lower(path), lower(p.Prefix)), nil
	case *routev3.RouteMatch_PathSeparatedPrefix:
		rest, ok := strings.CutPrefix(lower(path), lower(p.PathSeparatedPrefix))
		return ok && (rest == "" || rest[0] == '/'), nil
	case *routev3.RouteMatch_SafeRegex:
		return fullMatch(p.SafeRegex.GetRegex(), path)
	}
	return false, fmt.Errorf("simulation of the path match %T", m.GetPathSpecifier())
}

func fullMatch(pattern, s string) (bool, error) {
	compiled, err := regexp.Compile("^(?:" + pattern + ")$")
	if err != nil {
		return false, err
	}
	return compiled.MatchString(s), nil
}

// headerMatches evaluates one header matcher, also for pseudo headers.
func headerMatches(h *routev3.HeaderMatcher, r Request) (bool, error) {
	value, present := requestHeader(r, h.GetName())
	if !present && h.GetTreatMissingHeaderAsEmpty() {
		present = true
	}
	ok := false
	switch spec := h.GetHeaderMatchSpecifier().(type) {
	case *routev3.HeaderMatcher_PresentMatch:
		ok = present == spec.PresentMatch
	case *routev3.HeaderMatcher_StringMatch:
		if !present {
			return false, nil // as in Envoy: even where the match is inverted
		}
		var err error
		if ok, err = stringMatches(spec.StringMatch, value); err != nil {
			return false, err
		}
	default:
		return false, fmt.Errorf("simulation of the header match %T", spec)
	}
	return ok != h.GetInvertMatch(), nil
}

func requestHeader(r Request, name string) (string, bool) {
	switch name {
	case ":method":
		return r.Method, true
	case ":authority", "host":
		return r.Host, true
	case ":scheme":
		return r.scheme(), true
	case ":path":
		return r.Path, true
	}
	for k, v := range r.Headers {
		if strings.EqualFold(k, name) {
			return strings.TrimSpace(v), true
		}
	}
	return "", false
}

func stringMatches(m *matcherv3.StringMatcher, value string) (bool, error) {
	lower := func(s string) string {
		if m.GetIgnoreCase() {
			return strings.ToLower(s)
		}
		return s
	}
	switch p := m.GetMatchPattern().(type) {
	case *matcherv3.StringMatcher_Exact:
		return lower(value) == lower(p.Exact), nil
	case *matcherv3.StringMatcher_Prefix:
		return strings.HasPrefix(lower(value), lower(p.Prefix)), nil
	case *matcherv3.StringMatcher_Suffix:
		return strings.HasSuffix(lower(value), lower(p.Suffix)), nil
	case *matcherv3.StringMatcher_SafeRegex:
		return fullMatch(p.SafeRegex.GetRegex(), value)
	}
	return false, fmt.Errorf("simulation of the string match %T", m.GetMatchPattern())
}

func parameterMatches(q *routev3.QueryParameterMatcher, query url.Values) (bool, error) {
	if !query.Has(q.GetName()) {
		return false, nil
	}
	switch spec := q.GetQueryParameterMatchSpecifier().(type) {
	case *routev3.QueryParameterMatcher_PresentMatch:
		return spec.PresentMatch, nil
	case *routev3.QueryParameterMatcher_StringMatch:
		return stringMatches(spec.StringMatch, query.Get(q.GetName()))
	}
	return false, fmt.Errorf("simulation of the query match %T", q.GetQueryParameterMatchSpecifier())
}

func (p *Proxy) act(route *routev3.Route, r Request, result *Result) {
	switch action := route.GetAction().(type) {
	case *routev3.Route_DirectResponse:
		result.Status = int(action.DirectResponse.GetStatus())
		body := action.DirectResponse.GetBody()
		result.Body = body.GetInlineString() + string(body.GetInlineBytes())
	case *routev3.Route_Redirect:
		result.Status, result.Location = redirect(action.Redirect, route.GetMatch(), r)
	case *routev3.Route_Route:
		p.forward(action.Route, route.GetMatch(), r, result)
	default:
		result.Err = fmt.Errorf("simulation of the action %T", action)
	}
}

func (p *Proxy) forward(a *routev3.RouteAction, m *routev3.RouteMatch, r Request, result *Result) {
	result.Host, result.Path, result.Headers = r.Host, r.Path, r.Headers
	if host := a.GetHostRewriteLiteral(); host != "" {
		result.Host = host
	}
	path, query, hasQuery := strings.Cut(r.Path, "?")
	if prefix := a.GetPrefixRewrite(); prefix != "" {
		path = rewritePrefix(m, path, prefix)
	}
	if regex := a.GetRegexRewrite(); regex != nil {
		compiled, err := regexp.Compile(regex.GetPattern().GetRegex())
		if err != nil {
			result.Err = err
			return
		}
		substitution := regexp.MustCompile(`\\(\d)`).ReplaceAllString(regex.GetSubstitution(), "$${$1}")
		path = compiled.ReplaceAllString(path, substitution)
	}
	if result.Path = path; hasQuery {
		result.Path += "?" + query
	}
	result.Mirrors = mirrors(a)
	switch c := a.GetClusterSpecifier().(type) {
	case *routev3.RouteAction_Cluster:
		result.Destinations = []Destination{p.destination(c.Cluster, 1)}
	case *routev3.RouteAction_WeightedClusters:
		for _, w := range c.WeightedClusters.GetClusters() {
			d := p.destination(w.GetName(), w.GetWeight().GetValue())
			d.Host = w.GetHostRewriteLiteral()
			result.Destinations = append(result.Destinations, d)
		}
	default:
		result.Err = fmt.Errorf("simulation of the cluster specifier %T", c)
	}
}

// rewritePrefix replaces the matched part of the path.
func rewritePrefix(m *routev3.RouteMatch, path, prefix string) string {
	switch p := m.GetPathSpecifier().(type) {
	case *routev3.RouteMatch_Prefix:
		return prefix + path[len(p.Prefix):]
	case *routev3.RouteMatch_PathSeparatedPrefix:
		return prefix + path[len(p.PathSeparatedPrefix):]
	}
	return prefix
}

func redirect(a *routev3.RedirectAction, m *routev3.RouteMatch, r Request) (int, string) {
	codes := map[routev3.RedirectAction_RedirectResponseCode]int{
		routev3.RedirectAction_MOVED_PERMANENTLY:  301,
		routev3.RedirectAction_FOUND:              302,
		routev3.RedirectAction_SEE_OTHER:          303,
		routev3.RedirectAction_TEMPORARY_REDIRECT: 307,
		routev3.RedirectAction_PERMANENT_REDIRECT: 308,
	}
	scheme := r.scheme()
	if a.GetSchemeRedirect() != "" {
		scheme = a.GetSchemeRedirect()
	}
	if a.GetHttpsRedirect() {
		scheme = "https"
	}
	host := r.Host
	if a.GetHostRedirect() != "" {
		host = a.GetHostRedirect()
	}
	if port := a.GetPortRedirect(); port != 0 {
		host = fmt.Sprintf("%s:%d", hostOnly(host), port)
	}
	path, query, hasQuery := strings.Cut(r.Path, "?")
	if a.GetPathRedirect() != "" {
		path = a.GetPathRedirect()
	}
	if a.GetPrefixRewrite() != "" {
		path = rewritePrefix(m, path, a.GetPrefixRewrite())
	}
	if hasQuery && !a.GetStripQuery() {
		path += "?" + query
	}
	return codes[a.GetResponseCode()], scheme + "://" + host + path
}

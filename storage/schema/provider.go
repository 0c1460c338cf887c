package schema

import (
	"net/url"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/types/known/durationpb"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
)

// checkProviders refuses what Istio refuses of extension providers (Istio: extensionprovider.go),
// and values that Envoy refuses.
func checkProviders(c checker, all []*meshv1alpha1.MeshConfig_ExtensionProvider) {
	seen := map[string]bool{}
	each(c, all, func(c checker, p *meshv1alpha1.MeshConfig_ExtensionProvider) {
		switch name := p.GetName(); {
		case name == "":
			c.at("name").fail("is missing: policies and Telemetries name the provider by it")
		case seen[name]:
			c.at("name").fail("%q is the name of another provider: choose another", name)
		}
		seen[p.GetName()] = true
		switch {
		case p.GetProvider() == nil:
			c.fail("has no kind: set one, such as envoyExtAuthzGrpc")
		case p.GetEnvoyExtAuthzHttp() != nil:
			checkHTTPAuthorizer(c.at("envoyExtAuthzHttp"), p.GetEnvoyExtAuthzHttp())
		case p.GetEnvoyExtAuthzGrpc() != nil:
			checkAuthorizer(c.at("envoyExtAuthzGrpc"), p.GetEnvoyExtAuthzGrpc())
		default:
			checkReportingProvider(c, p)
		}
	})
}

// servicePort checks a service, [namespace/]host, its port and the time to wait for it.
func (c checker) servicePort(service string, port uint32, timeout *durationpb.Duration) {
	if at := c.at("service"); service == "" {
		at.fail("is missing: write the host of a service, or namespace/host")
	} else if _, host := at.namespacedHost(service); isWildcard(host) {
		at.fail("%q stands for many hosts: write the host of one service", service)
	}
	c.at("port").port(port)
	c.at("timeout").duration(timeout)
}

// authorizer is what both kinds of external authorizers have.
type authorizer interface {
	GetService() string
	GetPort() uint32
	GetTimeout() *durationpb.Duration
	GetStatusOnError() string
	GetIncludeRequestBodyInCheck() *meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyExternalAuthorizationRequestBody
}

func checkAuthorizer(c checker, p authorizer) {
	c.servicePort(p.GetService(), p.GetPort(), p.GetTimeout())
	if text := p.GetStatusOnError(); text != "" && !knownStatus(text) {
		c.at("statusOnError").fail("%q is no status that Envoy knows: use one like 403 or 503", text)
	}
	if b := p.GetIncludeRequestBodyInCheck(); b != nil && b.GetMaxRequestBytes() == 0 {
		c.at("includeRequestBodyInCheck", "maxRequestBytes").fail("must be at least 1: say how much of a body the proxy may hold")
	}
}

// knownStatus says whether Envoy has the HTTP status. (Envoy: type/v3/http_status.proto.)
func knownStatus(text string) bool {
	code, err := strconv.Atoi(text)
	if err != nil {
		return false
	}
	ranges := [][2]int{{200, 208}, {300, 305}, {307, 308}, {400, 417}, {421, 424}, {500, 508}}
	return slices.Contains([]int{100, 226, 426, 428, 429, 431, 510, 511}, code) ||
		slices.ContainsFunc(ranges, func(r [2]int) bool { return code >= r[0] && code <= r[1] })
}

func checkHTTPAuthorizer(c checker, p *meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyExternalAuthorizationHttpProvider) {
	checkAuthorizer(c, p)
	if prefix := p.GetPathPrefix(); prefix != "" {
		if _, err := url.Parse(prefix); err != nil || !strings.HasPrefix(prefix, "/") {
			c.at("pathPrefix").fail("must be a path that begins with /, is %q", prefix)
		}
	}
	//lint:ignore SA1019 Istio takes the deprecated field still.
	old := p.GetIncludeHeadersInCheck()
	for _, list := range []struct {
		field string
		names []string
	}{
		{"includeRequestHeadersInCheck", p.GetIncludeRequestHeadersInCheck()},
		{"includeHeadersInCheck", old},
		{"headersToUpstreamOnAllow", p.GetHeadersToUpstreamOnAllow()},
		{"headersToDownstreamOnDeny", p.GetHeadersToDownstreamOnDeny()},
		{"headersToDownstreamOnAllow", p.GetHeadersToDownstreamOnAllow()},
	} {
		for i, name := range list.names {
			if strings.Trim(name, "*") == "" {
				c.at(list.field).index(i).fail("%q names no header: write a name, a beginning like x-* or an end like *-id", name)
			}
		}
	}
	for _, name := range sortedKeys(p.GetIncludeAdditionalHeadersInCheck()) {
		c.at("includeAdditionalHeadersInCheck").headerName(name)
	}
	if p.GetIncludeRequestBodyInCheck().GetPackAsBytes() {
		c.at("includeRequestBodyInCheck", "packAsBytes").warn("has no effect: it is for envoyExtAuthzGrpc")
	}
	switch {
	case len(old) == 0:
	case len(p.GetIncludeRequestHeadersInCheck()) > 0:
		c.at("includeHeadersInCheck").warn("has no effect beside includeRequestHeadersInCheck")
	default:
		c.at("includeHeadersInCheck").warn("is deprecated: use includeRequestHeadersInCheck")
	}
}

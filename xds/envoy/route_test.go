package envoy_test

import (
	"math"
	"slices"
	"testing"
	"time"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/envoy/envoytest"
)

func ptr[T any](v T) *T { return &v }

func TestMatch(t *testing.T) {
	t.Parallel()
	exact := func(value string) *envoy.StringMatch { return &envoy.StringMatch{Kind: envoy.Exact, Value: value} }
	for name, c := range map[string]struct {
		options  envoy.MatchOptions
		want     string
		catchAll bool
	}{
		"everything": {envoy.MatchOptions{}, `{"prefix": "/"}`, true},
		"every regex": {
			envoy.MatchOptions{Path: envoy.StringMatch{Kind: envoy.Regex, Value: ".*"}}, `{"safeRegex": {"regex": ".*"}}`, true,
		},
		"exact": {envoy.MatchOptions{Path: *exact("/a")}, `{"path": "/a"}`, false},
		"prefix, any case": {
			envoy.MatchOptions{Path: envoy.StringMatch{Kind: envoy.Prefix, Value: "/a"}, IgnorePathCase: true},
			`{"prefix": "/a", "caseSensitive": false}`, false,
		},
		"regex has its own case": {
			envoy.MatchOptions{Path: envoy.StringMatch{Kind: envoy.Regex, Value: "/a"}, IgnorePathCase: true},
			`{"safeRegex": {"regex": "/a"}}`, false,
		},
		"every prefix": {envoy.MatchOptions{Path: envoy.StringMatch{Kind: envoy.Prefix, Value: "/"}}, `{"prefix": "/"}`, true},
		"method, authority, scheme": {
			envoy.MatchOptions{Method: exact("GET"), Authority: &envoy.StringMatch{Kind: envoy.Prefix, Value: "a."}, HTTPScheme: exact("https")},
			`{"prefix": "/", "headers": [
				{"name": ":method", "stringMatch": {"exact": "GET"}},
				{"name": ":authority", "stringMatch": {"prefix": "a."}},
				{"name": ":scheme", "stringMatch": {"exact": "https"}}]}`, false,
		},
		"headers, by name": {
			envoy.MatchOptions{Headers: []envoy.NamedMatch{
				{Name: "d", StringMatch: envoy.StringMatch{Kind: envoy.Regex, Value: "*"}},
				{Name: "c"},
				{Name: "b", StringMatch: *exact("1"), Invert: true},
				{Name: "c", Invert: true},
				{Name: "a", StringMatch: envoy.StringMatch{Kind: envoy.Regex, Value: "x.*"}},
			}},
			`{"prefix": "/", "headers": [
				{"name": "a", "stringMatch": {"safeRegex": {"regex": "x.*"}}},
				{"name": "b", "stringMatch": {"exact": "1"}, "invertMatch": true, "treatMissingHeaderAsEmpty": true},
				{"name": "c", "presentMatch": true},
				{"name": "c", "presentMatch": true, "invertMatch": true},
				{"name": "d", "presentMatch": true}]}`, false,
		},
		"query parameters, by name": {
			envoy.MatchOptions{QueryParameters: []envoy.NamedMatch{
				{Name: "b", StringMatch: *exact("")}, {Name: "a"}, {Name: "c", StringMatch: envoy.StringMatch{Kind: envoy.Prefix, Value: "p"}},
			}},
			`{"prefix": "/", "queryParameters": [{"name": "a", "presentMatch": true},
				{"name": "b", "stringMatch": {"exact": ""}}, {"name": "c", "stringMatch": {"prefix": "p"}}]}`, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			envoytest.Check(t, envoy.Route(envoy.RouteOptions{Match: c.options}).GetMatch(), c.want)
			if c.options.CatchAll() != c.catchAll {
				t.Errorf("a catch-all: got %t", !c.catchAll)
			}
		})
	}
}

func TestRoute(t *testing.T) {
	t.Parallel()
	web := envoy.Forward{Clusters: []envoy.WeightedCluster{{Name: "c"}}}
	const noTimeout = `"timeout": "0s", "maxStreamDuration": {"grpcTimeoutHeaderMax": "0s"}`
	for name, c := range map[string]struct {
		options envoy.RouteOptions
		want    string
	}{
		"one cluster": {
			envoy.RouteOptions{Forward: &web},
			`"name": "default", "route": {"cluster": "c", ` + noTimeout + `}`,
		},
		"all of it": {
			envoy.RouteOptions{
				Name: "r", Operation: "op", Config: "/apis/x",
				Forward: &envoy.Forward{
					Clusters: web.Clusters, Timeout: time.Second, PrefixRewrite: "/b", HostRewrite: "h",
					HashPolicies: []envoy.HashPolicy{{Header: "x"}},
				},
			},
			`"name": "r", "decorator": {"operation": "op"}, "metadata": {"filterMetadata": {"istio": {"config": "/apis/x"}}},
			 "route": {"cluster": "c", "timeout": "1s",
				"prefixRewrite": "/b", "hostRewriteLiteral": "h", "hashPolicy": [{"header": {"headerName": "x"}}]}`,
		},
		"regex rewrite": {
			envoy.RouteOptions{Forward: &envoy.Forward{Clusters: web.Clusters, RegexRewrite: &envoy.RegexRewrite{Match: "/(.*)", Substitution: `/v2/\1`}}},
			`"name": "default", "route": {"cluster": "c", "regexRewrite": {"pattern": {"regex": "/(.*)"}, "substitution": "/v2/\\1"}, ` + noTimeout + `}`,
		},
		"several clusters, less those without weight": {
			envoy.RouteOptions{Forward: &envoy.Forward{Clusters: []envoy.WeightedCluster{
				{Name: "a", Weight: 90}, {Name: "b"}, {Name: "c", Weight: 10, Headers: envoy.Headers{
					Request:  envoy.HeaderOps{Set: map[string]string{"x": "1", "host": "h"}, Remove: []string{"y"}},
					Response: envoy.HeaderOps{Add: map[string]string{"z": "2"}},
				}},
			}}},
			`"name": "default", "route": {` + noTimeout + `, "weightedClusters": {"clusters": [{"name": "a", "weight": 90},
				{"name": "c", "weight": 10, "hostRewriteLiteral": "h", "requestHeadersToRemove": ["y"],
				 "requestHeadersToAdd": [{"header": {"key": "x", "value": "1"}, "appendAction": "OVERWRITE_IF_EXISTS_OR_ADD"}],
				 "responseHeadersToAdd": [{"header": {"key": "z", "value": "2"}}]}]}}`,
		},
		"one left of several": {
			envoy.RouteOptions{Forward: &envoy.Forward{Clusters: []envoy.WeightedCluster{{Name: "a", Weight: 1}, {Name: "b"}}}},
			`"name": "default", "route": {"cluster": "a", ` + noTimeout + `}`,
		},
		"none left": {
			envoy.RouteOptions{Forward: &envoy.Forward{Clusters: []envoy.WeightedCluster{{Name: "a"}, {Name: "b"}}}},
			`"name": "default", "directResponse": {"status": 500}`,
		},
		"headers of route, then of its one cluster": {
			envoy.RouteOptions{
				Headers: envoy.Headers{Request: envoy.HeaderOps{
					Set: map[string]string{"b": "2", "a": "1", ":authority": "route", ":path": "/no"}, Add: map[string]string{"a": "3"},
				}},
				Forward: &envoy.Forward{HostRewrite: "rewrite", Clusters: []envoy.WeightedCluster{{Name: "c", Headers: envoy.Headers{
					Request:  envoy.HeaderOps{Set: map[string]string{"a": "4", "Host": "cluster"}, Remove: []string{"r"}},
					Response: envoy.HeaderOps{Remove: []string{"s"}},
				}}}},
			},
			`"name": "default", "route": {"cluster": "c", "hostRewriteLiteral": "cluster", ` + noTimeout + `},
			 "requestHeadersToRemove": ["r"], "responseHeadersToRemove": ["s"], "requestHeadersToAdd": [
				{"header": {"key": "a", "value": "1"}, "appendAction": "OVERWRITE_IF_EXISTS_OR_ADD"},
				{"header": {"key": "b", "value": "2"}, "appendAction": "OVERWRITE_IF_EXISTS_OR_ADD"},
				{"header": {"key": "a", "value": "3"}},
				{"header": {"key": "a", "value": "4"}, "appendAction": "OVERWRITE_IF_EXISTS_OR_ADD"}]`,
		},
		"direct response": {
			envoy.RouteOptions{DirectResponse: &envoy.DirectResponse{Status: 418, Body: []byte("tea")}},
			`"name": "default", "directResponse": {"status": 418, "body": {"inlineString": "tea"}}`,
		},
		"direct response in bytes": {
			envoy.RouteOptions{DirectResponse: &envoy.DirectResponse{Status: 200, Body: []byte{0xff}}},
			`"name": "default", "directResponse": {"status": 200, "body": {"inlineBytes": "/w=="}}`,
		},
		"nothing": {envoy.RouteOptions{}, `"name": "default", "directResponse": {"status": 500}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			envoytest.Check(t, envoy.Route(c.options), `{"match": {"prefix": "/"}, `+c.want+`}`)
		})
	}
}

func TestRedirect(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		options envoy.Redirect
		want    string
	}{
		"path":             {envoy.Redirect{Path: "/b", Host: "h"}, `{"pathRedirect": "/b", "hostRedirect": "h"}`},
		"prefix":           {envoy.Redirect{PrefixRewrite: "/b", Code: 308}, `{"prefixRewrite": "/b", "responseCode": "PERMANENT_REDIRECT"}`},
		"302":              {envoy.Redirect{Code: 302}, `{"responseCode": "FOUND"}`},
		"303":              {envoy.Redirect{Code: 303}, `{"responseCode": "SEE_OTHER"}`},
		"307":              {envoy.Redirect{Code: 307}, `{"responseCode": "TEMPORARY_REDIRECT"}`},
		"301":              {envoy.Redirect{Code: 301}, `{}`},
		"the port implied": {envoy.Redirect{Scheme: "https", Port: 443}, `{"schemeRedirect": "https"}`},
		"another port":     {envoy.Redirect{Scheme: "https", Port: 80}, `{"schemeRedirect": "https", "portRedirect": 80}`},
		"by the request":   {envoy.Redirect{Port: 443, TLS: true}, `{}`},
		"plaintext":        {envoy.Redirect{Port: 443}, `{"portRedirect": 443}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			envoytest.Check(t, envoy.Route(envoy.RouteOptions{Redirect: &c.options}).GetRedirect(), c.want)
		})
	}
}

func TestRetry(t *testing.T) {
	t.Parallel()
	const (
		previous = `"hostSelectionRetryMaxAttempts": "5", "retryHostPredicate": [{"name": "envoy.retry_host_predicates.previous_hosts",
			"typedConfig": {"@type": "type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate"}}]`
		defaultOn = `"retryOn": "connect-failure,refused-stream,unavailable,cancelled,retriable-status-codes"`
	)
	for name, c := range map[string]struct {
		options envoy.RetryOptions
		want    string
	}{
		"by default":  {envoy.RetryOptions{}, `"numRetries": 2, ` + defaultOn + `, ` + previous},
		"with a hash": {envoy.RetryOptions{ConsistentHash: true}, `"numRetries": 2, "hostSelectionRetryMaxAttempts": "5", ` + defaultOn},
		"with a hash, and yet": {
			envoy.RetryOptions{ConsistentHash: true, IgnorePreviousHosts: ptr(true)}, `"numRetries": 2, ` + defaultOn + `, ` + previous,
		},
		"the same host again": {
			envoy.RetryOptions{IgnorePreviousHosts: ptr(false)}, `"numRetries": 2, "hostSelectionRetryMaxAttempts": "5", ` + defaultOn,
		},
		"conditions and codes": {
			envoy.RetryOptions{Attempts: ptr[int32](7), On: "5xx, 503,429 ,,99"},
			`"numRetries": 7, "retryOn": "5xx,99,retriable-status-codes", "retriableStatusCodes": [503, 429], ` + previous,
		},
		"codes turned on already": {
			envoy.RetryOptions{On: "retriable-status-codes,503"},
			`"numRetries": 2, "retryOn": "retriable-status-codes", "retriableStatusCodes": [503], ` + previous,
		},
		"times and localities": {
			envoy.RetryOptions{PerTryTimeout: time.Second, Backoff: time.Millisecond, RemoteLocalities: true},
			`"numRetries": 2, "perTryTimeout": "1s", "retryBackOff": {"baseInterval": "0.001s"}, ` + defaultOn + `, ` + previous + `,
			 "retryPriority": {"name": "envoy.retry_priorities.previous_priorities", "typedConfig": {"updateFrequency": 2,
				"@type": "type.googleapis.com/envoy.extensions.retry.priority.previous_priorities.v3.PreviousPrioritiesConfig"}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			envoytest.Check(t, retryPolicy(c.options), `{`+c.want+`}`)
		})
	}
	for _, attempts := range []int32{0, -1, math.MinInt32} {
		if got := retryPolicy(envoy.RetryOptions{Attempts: &attempts}); got != nil {
			t.Errorf("%d attempts: got %v", attempts, got)
		}
	}
}

func retryPolicy(o envoy.RetryOptions) *routev3.RetryPolicy {
	return envoy.Route(envoy.RouteOptions{Forward: &envoy.Forward{
		Clusters: []envoy.WeightedCluster{{Name: "c"}}, Retry: &o,
	}}).GetRoute().GetRetryPolicy()
}

func TestHashPolicies(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		options envoy.HashPolicy
		want    string
	}{
		"header":    {envoy.HashPolicy{Header: "x"}, `{"header": {"headerName": "x"}}`},
		"parameter": {envoy.HashPolicy{QueryParameter: "q"}, `{"queryParameter": {"name": "q"}}`},
		"address":   {envoy.HashPolicy{SourceIP: true}, `{"connectionProperties": {"sourceIp": true}}`},
		"cookie":    {envoy.HashPolicy{Cookie: &envoy.HashCookie{Name: "c"}}, `{"cookie": {"name": "c"}}`},
		"cookie that is made": {
			envoy.HashPolicy{Cookie: &envoy.HashCookie{
				Name: "c", Path: "/", TTL: ptr(time.Duration(0)), Attributes: []envoy.CookieAttribute{{Name: "SameSite", Value: "Lax"}},
			}},
			`{"cookie": {"name": "c", "path": "/", "ttl": "0s", "attributes": [{"name": "SameSite", "value": "Lax"}]}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			route := envoy.Route(envoy.RouteOptions{Forward: &envoy.Forward{
				Clusters: []envoy.WeightedCluster{{Name: "c"}}, HashPolicies: []envoy.HashPolicy{c.options},
			}})
			envoytest.Check(t, route.GetRoute().GetHashPolicy()[0], c.want)
		})
	}
}

func TestRouteConfig(t *testing.T) {
	t.Parallel()
	host := envoy.VirtualHost(envoy.VirtualHostOptions{Name: "web:80", Domains: []string{"web"}, RequireTLS: true})
	envoytest.Check(t, envoy.RouteConfig(envoy.RouteConfigOptions{
		Name: "80", VirtualHosts: []*routev3.VirtualHost{host}, MaxDirectResponseBody: 1 << 20,
	}), `{"name": "80", "validateClusters": false, "ignorePortInHostMatching": true, "maxDirectResponseBodySizeBytes": 1048576,
		"virtualHosts": [{"name": "web:80", "domains": ["web"], "requireTls": "ALL", "includeRequestAttemptCount": true}]}`)
	envoytest.Check(t, envoy.RouteConfig(envoy.RouteConfigOptions{Name: "80", MatchPort: true}), `{"name": "80", "validateClusters": false}`)
}

func TestWeightsOfClustersFit(t *testing.T) {
	t.Parallel()
	var sum uint64
	route := envoy.Route(envoy.RouteOptions{Forward: &envoy.Forward{Clusters: []envoy.WeightedCluster{
		{Name: "a", Weight: math.MaxInt32}, {Name: "b", Weight: math.MaxInt32}, {Name: "c", Weight: math.MaxInt32},
	}}})
	for _, c := range route.GetRoute().GetWeightedClusters().GetClusters() {
		sum += uint64(c.GetWeight().GetValue())
	}
	if sum > math.MaxUint32 || sum < math.MaxUint32/3 {
		t.Errorf("the sum is %d", sum)
	}
}

// TestSharedRetries: a retry policy that routes share stands once, at their host. A route without
// retries keeps all policies at the routes, since it would get that of the host.
func TestSharedRetries(t *testing.T) {
	t.Parallel()
	forward := func(attempts int32) envoy.RouteOptions {
		return envoy.RouteOptions{Forward: &envoy.Forward{
			Clusters: []envoy.WeightedCluster{{Name: "a"}}, Retry: &envoy.RetryOptions{Attempts: &attempts},
		}}
	}
	redirect := envoy.RouteOptions{Redirect: &envoy.Redirect{Path: "/"}}
	for name, test := range map[string]struct {
		routes []envoy.RouteOptions
		host   uint32 // retries at the host, 0 for none
		own    []uint32
	}{
		"one route":            {[]envoy.RouteOptions{forward(2)}, 0, []uint32{2}},
		"alike":                {[]envoy.RouteOptions{redirect, forward(2), forward(2)}, 2, []uint32{0, 0, 0}},
		"another one":          {[]envoy.RouteOptions{forward(2), forward(3), forward(2)}, 2, []uint32{0, 3, 0}},
		"all different":        {[]envoy.RouteOptions{forward(2), forward(3)}, 0, []uint32{2, 3}},
		"one that retries not": {[]envoy.RouteOptions{forward(2), forward(2), forward(0)}, 0, []uint32{2, 2, 0}},
	} {
		h := envoy.VirtualHost(envoy.VirtualHostOptions{Name: "h", Domains: []string{"*"}, Routes: test.routes})
		var own []uint32
		for _, r := range h.GetRoutes() {
			own = append(own, r.GetRoute().GetRetryPolicy().GetNumRetries().GetValue())
		}
		if got := h.GetRetryPolicy().GetNumRetries().GetValue(); got != test.host || !slices.Equal(own, test.own) {
			t.Errorf("%s: %d retries at the host and %v at the routes, want %d and %v", name, got, own, test.host, test.own)
		}
	}
}

package proxyless_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/generate/proxyless"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

func sorted(in []string) []string { return slices.Sorted(slices.Values(in)) }

// The routes of a VirtualService as gRPC reads them.
func TestRoutes(t *testing.T) {
	t.Parallel()
	const (
		to    = "route: [{destination: {host: web.example.com}}]"
		plain = "/* -> 80 retry 2 on unavailable,cancelled"
	)
	// No call matches; its cluster is announced all the same.
	unmatched := []string{"/* -> nowhere", "/* -> 80"}
	matching := func(match string) string { return "{match: [" + match + "], " + to + ", retries: {attempts: 0}}" }
	hashed := func(by string) string {
		return object("DestinationRule", "web", "{host: web.example.com, trafficPolicy: {loadBalancer: {consistentHash: {"+by+"}}}}")
	}
	for _, tc := range []struct {
		name, http string
		others     []string
		want       []string
	}{
		{name: "no VirtualService", want: []string{plain}},
		{name: "an exact path", http: matching("{uri: {exact: /a.B/C}}"), want: []string{"/a.B/C -> 80"}},
		{name: "a prefix, whatever the case", http: matching("{uri: {prefix: /a.B/}, ignoreUriCase: true}"), want: []string{"/a.B/* (any case) -> 80"}},
		{name: "an expression", http: matching("{uri: {regex: '/a.*'}}"), want: []string{"~/a.* -> 80"}},
		{name: "headers", http: matching("{headers: {X-User: {exact: jo}, x-any: {}}}"), want: []string{"/* x-user=jo, x-any -> 80"}},
		{name: "without a header at all", http: matching("{withoutHeaders: {x-user: {}}}"), want: []string{"/* not x-user -> 80"}},
		{name: "without a value: missing, or another", http: matching("{withoutHeaders: {x-user: {exact: jo}}}"),
			want: []string{"/* not x-user -> 80", "/* not x-user=jo -> 80"}},
		{name: "without two values", http: matching("{withoutHeaders: {a: {exact: '1'}, b: {prefix: '2'}}}"),
			want: []string{"/* not a, not b -> 80", "/* not a, not b=2* -> 80", "/* not a=1, not b -> 80", "/* not a=1, not b=2* -> 80"}},
		{name: "the method is always POST", http: matching("{method: {exact: POST}}") + ", " + matching("{method: {exact: GET}}"), want: []string{"/* -> 80"}},
		{name: "and the scheme http", http: matching("{scheme: {regex: 'https'}}"), want: unmatched},
		{name: "the authority is the target", http: matching("{authority: {exact: 'web.example.com:80'}}"), want: []string{"/* -> 80"}},
		{name: "with or without its port", http: matching("{authority: {regex: 'web.*com'}}"), want: []string{"/* -> 80"}},
		{name: "another authority", http: matching("{authority: {prefix: other}}"), want: unmatched},
		{name: "calls have no query", http: matching("{queryParams: {a: {exact: '1'}}}"), want: unmatched},
		{name: "weights", http: "{route: [{destination: {host: web.example.com, subset: v1}, weight: 9}, {destination: {host: web.example.com, port: {number: 81}}, weight: 1}], retries: {attempts: 0}}",
			want: []string{"/* -> 80/v1 9, 81 1"}},
		{name: "a weight of 0 is announced", http: "{route: [{destination: {host: web.example.com, subset: v1}, weight: 1}, {destination: {host: web.example.com, subset: v2}, weight: 0}], retries: {attempts: 0}}",
			want: []string{"/* -> 80/v1", "/* -> 80/v2"}},
		{name: "where no call comes to", http: "{match: [{uri: {prefix: /a}}], route: [{destination: {host: web.example.com, subset: v1}, weight: 0}, {destination: {host: web.example.com}, weight: 1}], retries: {attempts: 0}}",
			want: []string{"/a* -> 80", "/* -> nowhere", "/* -> 80/v1"}},
		{name: "so are the other subsets of a service", http: "{route: [{destination: {host: web.example.com, subset: v2}}], retries: {attempts: 0}}",
			others: []string{object("DestinationRule", "web", "{host: web.example.com, subsets: [{name: v1}, {name: v2}, {name: v3}]}")},
			want:   []string{"/* -> 80/v2", "/* -> 80/v1", "/* -> 80/v3"}},
		{name: "but none of one that no route splits", http: "{route: [{destination: {host: web.example.com}}], retries: {attempts: 0}}",
			others: []string{object("DestinationRule", "web", "{host: web.example.com, subsets: [{name: v1}]}")}, want: []string{"/* -> 80"}},
		{name: "a timeout", http: "{timeout: 3s, " + to + ", retries: {attempts: 0}}", want: []string{"/* -> 80 in 3s"}},
		{name: "retries", http: "{" + to + ", retries: {attempts: 5, retryOn: 'internal,reset,503,deadline-exceeded', backoff: 1s}}", want: []string{"/* -> 80 retry 5 on internal,deadline-exceeded after 1s"}},
		{name: "retries that gRPC has none of", http: "{" + to + ", retries: {attempts: 5, retryOn: '5xx'}}", want: []string{"/* -> 80"}},
		{name: "a redirect is none of gRPC", http: "{match: [{uri: {prefix: /a}}], redirect: {uri: /b}}, {" + to + ", retries: {attempts: 0}}", want: []string{"/a* -> nowhere", "/* -> 80"}},
		{name: "nor is a direct response", http: "{directResponse: {status: 503}}", want: []string{"/* -> nowhere"}},
		{name: "mirrors, CORS and prefixes are none of gRPC", http: "{match: [{statPrefix: a}], " + to + ", retries: {attempts: 0}, mirror: {host: web.example.com, subset: v1}, corsPolicy: {allowOrigins: [{exact: '*'}]}}",
			want: []string{"/* -> 80"}},
		{name: "the routes of a delegate", http: "{match: [{uri: {prefix: /a}}], delegate: {name: d}, timeout: 3s, rewrite: {uri: /b}}, {" + to + ", retries: {attempts: 0}}",
			others: []string{object("VirtualService", "d", "{http: [{match: [{uri: {prefix: /a/b}}], route: [{destination: {host: web.example.com, subset: v1}}], retries: {attempts: 0}}, {match: [{uri: {exact: /c}}], "+to+"}]}")},
			want:   []string{"/a/b* -> 80/v1 in 3s", "/* -> 80"}},
		{name: "hash of a header", http: "{" + to + ", retries: {attempts: 0}}", others: []string{hashed("httpHeaderName: x-user")}, want: []string{"/* -> 80 hash x-user"}},
		{name: "hash of the client", http: "{" + to + ", retries: {attempts: 0}}", others: []string{hashed("useSourceIp: true")}, want: []string{"/* -> 80 hash io.grpc.channel_id"}},
		{name: "hash of a cookie, of which gRPC has none", http: "{" + to + ", retries: {attempts: 0}}", others: []string{hashed("httpCookie: {name: c, ttl: 0s}")}, want: []string{"/* -> 80"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			documents := append([]string{web}, tc.others...)
			if tc.http != "" {
				documents = append(documents, object("VirtualService", "web", "{hosts: [web.example.com], http: ["+tc.http+"]}"))
			}
			hosts := built[*routev3.RouteConfiguration](t, proxyless.Routes{}, client, documents...)["outbound|80||web.example.com"].GetVirtualHosts()
			if len(hosts) != 1 || hosts[0].GetName() != "web.example.com:80" || !slices.Equal(hosts[0].GetDomains(), []string{"*"}) {
				t.Fatalf("virtual hosts: %v", hosts)
			}
			var got []string
			for _, r := range hosts[0].GetRoutes() {
				got = append(got, text(r))
			}
			expect(t, tc.want, got)
		})
	}
}

// text writes a route as the tests above do.
func text(r *routev3.Route) string {
	headers := []string{}
	for _, h := range r.GetMatch().GetHeaders() {
		headers = append(headers, header(h))
	}
	out := strings.TrimSpace(path(r.GetMatch()) + " " + strings.Join(headers, ", "))
	to := r.GetRoute()
	if to.GetCluster() == "BlackHoleCluster" {
		return out + " -> nowhere"
	}
	out += " -> " + clusters(to)
	if limit := to.GetMaxStreamDuration().GetGrpcTimeoutHeaderMax(); limit.AsDuration() > 0 {
		out += " in " + limit.AsDuration().String()
	}
	if p := to.GetRetryPolicy(); p != nil {
		out += fmt.Sprintf(" retry %d on %s", p.GetNumRetries().GetValue(), p.GetRetryOn())
		if base := p.GetRetryBackOff().GetBaseInterval(); base != nil {
			out += " after " + base.AsDuration().String()
		}
	}
	for _, h := range to.GetHashPolicy() {
		out += " hash " + h.GetHeader().GetHeaderName() + h.GetFilterState().GetKey()
	}
	return out
}

func path(m *routev3.RouteMatch) string {
	out := m.GetPath()
	switch {
	case m.GetSafeRegex() != nil:
		out = "~" + m.GetSafeRegex().GetRegex()
	case m.GetPath() == "":
		out = m.GetPrefix() + "*"
	}
	if m.GetCaseSensitive() != nil && !m.GetCaseSensitive().GetValue() {
		out += " (any case)"
	}
	return out
}

func header(h *routev3.HeaderMatcher) string {
	out := h.GetName()
	if h.GetInvertMatch() {
		out = "not " + out
	}
	switch s := h.GetStringMatch().GetMatchPattern().(type) {
	case *matcherv3.StringMatcher_Exact:
		out += "=" + s.Exact
	case *matcherv3.StringMatcher_Prefix:
		out += "=" + s.Prefix + "*"
	}
	return out
}

// clusters returns the clusters of a route, as port/subset and weight.
func clusters(to *routev3.RouteAction) string {
	short := func(name string) string {
		parts := strings.Split(name, "|")
		return strings.TrimSuffix(parts[1]+"/"+parts[2], "/")
	}
	if to.GetWeightedClusters() == nil {
		return short(to.GetCluster())
	}
	var out []string
	for _, c := range to.GetWeightedClusters().GetClusters() {
		out = append(out, fmt.Sprintf("%s %d", short(c.GetName()), c.GetWeight().GetValue()))
	}
	return strings.Join(out, ", ")
}

// Announced clusters come behind a route that matches every call, and the routes before
// them stay the same.
func TestAnnounce(t *testing.T) {
	t.Parallel()
	const name = "outbound|80||web.example.com"
	for _, tc := range []struct {
		name, http string
		want       []string
	}{
		{name: "behind a route for all", http: "{route: [{destination: {host: web.example.com}}], retries: {attempts: 0}}",
			want: []string{"/* -> 80", "/* -> 81", "/* -> 82/v1"}},
		{name: "behind none", http: "{match: [{uri: {exact: /a}}], route: [{destination: {host: web.example.com}}], retries: {attempts: 0}}",
			want: []string{"/a -> 80", "/* -> nowhere", "/* -> 81", "/* -> 82/v1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := xdstest.NewWorld(t, web, object("VirtualService", "web", "{hosts: [web.example.com], http: ["+tc.http+"]}"))
			for _, r := range w.Build(client, proxyless.Routes{}) {
				if r.Name != name {
					continue
				}
				announced, err := generate.Announce(proxyless.Routes{}, r, []string{"outbound|81||web.example.com", "outbound|82|v1|other.example.com"})
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				for _, route := range message[*routev3.RouteConfiguration](t, announced).GetVirtualHosts()[0].GetRoutes() {
					got = append(got, text(route))
				}
				expect(t, tc.want, got)
				for _, cluster := range []string{name, "outbound|81||web.example.com", "outbound|82|v1|other.example.com"} {
					if !announced.Refers(cluster) {
						t.Errorf("%s is not among %v", cluster, announced.Needs)
					}
				}
				if announced.Name != r.Name || announced.Version == r.Version {
					t.Errorf("it is %s at version %s, was %s at %s", announced.Name, announced.Version, r.Name, r.Version)
				}
			}
		})
	}
}

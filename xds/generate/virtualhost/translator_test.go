package virtualhost_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/xds/simulate"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// behaviour is what happens to a request in a mesh.
type behaviour struct {
	name    string
	mesh    []string
	node    xdstest.Node
	config  string // MeshConfig, empty for the default
	request simulate.Request
	want    string
	// path and host, if set, are the request's at the destination.
	path, host string
}

func run(t *testing.T, tests []behaviour) {
	t.Helper()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := xdstest.NewWorld(t, tt.mesh...)
			if tt.config != "" {
				w.SetMesh(tt.config)
			}
			got := w.Simulate(tt.node).Run(tt.request)
			if got.String() != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			if tt.path != "" && got.Path != tt.path {
				t.Errorf("path %q, want %q", got.Path, tt.path)
			}
			if tt.host != "" && got.Host != tt.host {
				t.Errorf("host %q, want %q", got.Host, tt.host)
			}
		})
	}
}

// web is the service that most tests route to; reviews is another.
var (
	web     = xdstest.HTTPService("web", "web.example.com", "10.1.0.1")
	reviews = xdstest.HTTPService("reviews", "reviews.example.com", "10.2.0.1")
)

const (
	toWeb     = "outbound|80||web.example.com"
	toReviews = "outbound|80||reviews.example.com"
)

// routes is a VirtualService of web.example.com for sidecars.
func routes(http string) string {
	return xdstest.Object("VirtualService", "routes", "{hosts: [web.example.com], http: ["+http+"]}")
}

func TestVirtualServiceRoutes(t *testing.T) {
	t.Parallel()
	const reviewsRoute = "route: [{destination: {host: reviews.example.com}}]"
	const webRoute = "{route: [{destination: {host: web.example.com}}]}"
	matching := func(match string) []string {
		return []string{web, reviews, routes("{match: [" + match + "], " + reviewsRoute + "}, " + webRoute)}
	}
	at := func(path string) simulate.Request { return simulate.Request{Host: "web.example.com", Path: path} }
	with := func(headers map[string]string) simulate.Request {
		return simulate.Request{Host: "web.example.com", Headers: headers}
	}
	run(t, []behaviour{
		{name: "exact uri", mesh: matching("{uri: {exact: /a}}"), request: at("/a"), want: toReviews},
		{name: "exact uri of another path", mesh: matching("{uri: {exact: /a}}"), request: at("/a/b"), want: toWeb},
		{name: "uri prefix", mesh: matching("{uri: {prefix: /a}}"), request: at("/abc?x=1"), want: toReviews},
		{name: "uri regex matches the whole path", mesh: matching("{uri: {regex: '/a.c'}}"), request: at("/abcd"), want: toWeb},
		{name: "uri regex", mesh: matching("{uri: {regex: '/a.c'}}"), request: at("/abc?q"), want: toReviews},
		{name: "case of the uri ignored", mesh: matching("{uri: {prefix: /a}, ignoreUriCase: true}"), request: at("/ABC"), want: toReviews},
		{name: "method", mesh: matching("{method: {exact: POST}}"),
			request: simulate.Request{Host: "web.example.com", Method: "POST"}, want: toReviews},
		{name: "another method", mesh: matching("{method: {exact: POST}}"), request: at("/"), want: toWeb},
		{name: "scheme", mesh: matching("{scheme: {exact: http}}"), request: at("/"), want: toReviews},
		{name: "authority", mesh: matching("{authority: {prefix: web}}"), request: at("/"), want: toReviews},
		{name: "header", mesh: matching("{headers: {x-user: {exact: jo}}}"),
			request: with(map[string]string{"X-User": "jo"}), want: toReviews},
		{name: "header missing", mesh: matching("{headers: {x-user: {exact: jo}}}"), request: at("/"), want: toWeb},
		{name: "header present", mesh: matching("{headers: {x-user: {}}}"),
			request: with(map[string]string{"x-user": "anyone"}), want: toReviews},
		{name: "without a header that is missing", mesh: matching("{withoutHeaders: {x-user: {exact: jo}}}"),
			request: at("/"), want: toReviews},
		{name: "without a header that is there", mesh: matching("{withoutHeaders: {x-user: {exact: jo}}}"),
			request: with(map[string]string{"x-user": "jo"}), want: toWeb},
		{name: "without any value of a header", mesh: matching("{withoutHeaders: {x-user: {}}}"),
			request: with(map[string]string{"x-user": "jo"}), want: toWeb},
		{name: "query parameter", mesh: matching("{queryParams: {v: {exact: '2'}}}"), request: at("/?v=2"), want: toReviews},
		{name: "all of a match", mesh: matching("{uri: {prefix: /a}, method: {exact: PUT}}"), request: at("/a"), want: toWeb},
		{name: "one of several matches", mesh: matching("{uri: {prefix: /a}}, {uri: {prefix: /b}}"), request: at("/b"), want: toReviews},
		{name: "port of the listener", mesh: matching("{port: 80}"), request: at("/"), want: toReviews},
		{name: "another port", mesh: matching("{port: 81}"), request: at("/"), want: toWeb},
		{name: "source labels", mesh: matching("{sourceLabels: {app: cart}}"),
			node: xdstest.Node{Labels: map[string]string{"app": "cart"}}, request: at("/"), want: toReviews},
		{name: "other source labels", mesh: matching("{sourceLabels: {app: cart}}"), request: at("/"), want: toWeb},
		{name: "source namespace", mesh: matching("{sourceNamespace: shop}"),
			node: xdstest.Node{Namespace: "shop"}, request: at("/"), want: toReviews},
		{name: "another source namespace", mesh: matching("{sourceNamespace: shop}"), request: at("/"), want: toWeb},
		{name: "gateways of a match outrank its source", mesh: matching("{gateways: [mesh], sourceNamespace: elsewhere}"),
			request: at("/"), want: toReviews},
		{name: "another gateway", mesh: matching("{gateways: [gw]}"), request: at("/"), want: toWeb},
		{name: "the first route that matches", want: toReviews, request: at("/ab"),
			mesh: []string{web, reviews, routes("{match: [{uri: {prefix: /a}}], " + reviewsRoute + "}, {match: [{uri: {prefix: /ab}}], route: [{destination: {host: web.example.com}}]}")}},
		{name: "a VirtualService none of whose routes applies", want: toWeb, request: at("/"),
			mesh: []string{web, reviews, routes("{match: [{sourceNamespace: shop}], " + reviewsRoute + "}")}},
		{name: "no route for the rest", want: "no route", request: at("/other"),
			mesh: []string{web, reviews, routes("{match: [{uri: {prefix: /a}}], " + reviewsRoute + "}")}},
	})
}

func TestVirtualServiceDestinations(t *testing.T) {
	t.Parallel()
	subsets := xdstest.Object("DestinationRule", "web", "{host: web.example.com, subsets: [{name: v1, labels: {version: v1}}, {name: v2, labels: {version: v2}}]}")
	split := func(first, second string) []string {
		return []string{web, subsets, routes("{route: [{destination: {host: web.example.com, subset: v1}, weight: " + first +
			"}, {destination: {host: web.example.com, subset: v2}, weight: " + second + "}]}")}
	}
	ports := func(hostname string) string {
		return xdstest.Object("ServiceEntry", strings.ReplaceAll(hostname, ".", "-"), "{hosts: ["+hostname+
			"], resolution: STATIC, ports: [{number: 8080, name: http, protocol: HTTP}, {number: 9090, name: other, protocol: HTTP}]}")
	}
	single := xdstest.Object("ServiceEntry", "single", "{hosts: [single.example.com], resolution: STATIC, ports: [{number: 8080, name: http, protocol: HTTP}]}")
	to := func(destination string) string { return routes("{route: [{destination: " + destination + "}]}") }
	request := simulate.Request{Host: "web.example.com"}
	run(t, []behaviour{
		{name: "weights", mesh: split("90", "10"), request: request,
			want: "outbound|80|v1|web.example.com=90 outbound|80|v2|web.example.com=10"},
		{name: "weights need not sum to 100", mesh: split("1", "2"), request: request,
			want: "outbound|80|v1|web.example.com=1 outbound|80|v2|web.example.com=2"},
		{name: "weight 0 among several vanishes", mesh: split("0", "10"), request: request, want: "outbound|80|v2|web.example.com"},
		{name: "weight 0 of the only destination is all", request: request, want: "outbound|80||web.example.com",
			mesh: []string{web, routes("{route: [{destination: {host: web.example.com}, weight: 0}]}")}},
		{name: "a subset that no rule has", request: request, want: "outbound|80|v9|web.example.com (missing)",
			mesh: []string{web, subsets, to("{host: web.example.com, subset: v9}")}},
		{name: "port given", request: request, want: "outbound|9090||two.example.com",
			mesh: []string{web, ports("two.example.com"), to("{host: two.example.com, port: {number: 9090}}")}},
		{name: "the only port of the service", request: request, want: "outbound|8080||single.example.com",
			mesh: []string{web, single, to("{host: single.example.com}")}},
		{name: "several ports and none given: that of the listener", request: request, want: "outbound|80||two.example.com (missing)",
			mesh: []string{web, ports("two.example.com"), to("{host: two.example.com}")}},
		{name: "an unknown service", request: request, want: "outbound|80||nowhere.example.com (missing)",
			mesh: []string{web, to("{host: nowhere.example.com}")}},
		{name: "a short name is of the VirtualService's namespace", request: request, want: "outbound|80||cart.default.svc.cluster.local",
			mesh: []string{web, xdstest.HTTPService("cart", "cart.default.svc.cluster.local"), to("{host: cart}")}},
	})
}

func TestVirtualServiceActions(t *testing.T) {
	t.Parallel()
	request := simulate.Request{Host: "web.example.com", Path: "/old/page?q=1"}
	does := func(action string) []string { return []string{web, routes("{" + action + "}")} }
	const onward = ", route: [{destination: {host: web.example.com}}]"
	run(t, []behaviour{
		{name: "redirect", mesh: does("redirect: {uri: /new}"), request: request, want: "301 to http://web.example.com/new?q=1"},
		{name: "redirect to a host with a code", mesh: does("redirect: {authority: new.example.com, redirectCode: 307}"), request: request,
			want: "307 to http://new.example.com/old/page?q=1"},
		{name: "redirect to a scheme and port", mesh: does("redirect: {scheme: https, port: 8443}"), request: request,
			want: "301 to https://web.example.com:8443/old/page?q=1"},
		{name: "redirect to the port of a scheme", mesh: does("redirect: {scheme: https, port: 443}"), request: request,
			want: "301 to https://web.example.com/old/page?q=1"},
		{name: "redirect of a prefix", mesh: does("match: [{uri: {prefix: /old}}], redirect: {prefixRewrite: /new}"), request: request,
			want: "301 to http://web.example.com/new/page?q=1"},
		{name: "direct response", mesh: does("directResponse: {status: 418, body: {string: teapot}}"), request: request, want: "418 teapot"},
		{name: "rewrite of a prefix", mesh: does("match: [{uri: {prefix: /old}}], rewrite: {uri: /new}" + onward), request: request,
			want: toWeb, path: "/new/page?q=1"},
		{name: "rewrite of an exact path", mesh: does("match: [{uri: {exact: /old/page}}], rewrite: {uri: /new}" + onward), request: request,
			want: toWeb, path: "/new?q=1"},
		{name: "rewrites are literal", mesh: does("match: [{uri: {prefix: /old}}], rewrite: {uri: /}" + onward), request: request,
			want: toWeb, path: "//page?q=1"},
		{name: "rewrite by regex", request: request, want: toWeb, path: "/page/old?q=1",
			mesh: does(`rewrite: {uriRegexRewrite: {match: '^/(\w+)/(\w+)$', rewrite: '/\2/\1'}}` + onward)},
		{name: "rewrite of the host", mesh: does("rewrite: {authority: other.example.com}" + onward), request: request,
			want: toWeb, host: "other.example.com"},
		{name: "a host header replaces the host", mesh: does("headers: {request: {set: {Host: other.example.com}}}" + onward), request: request,
			want: toWeb, host: "other.example.com"},
	})
}

func TestRetriesAndTimeouts(t *testing.T) {
	t.Parallel()
	const onward = "route: [{destination: {host: web.example.com}}]"
	hash := xdstest.Object("DestinationRule", "web", "{host: web.example.com, trafficPolicy: {loadBalancer: {consistentHash: {httpHeaderName: x-user}}}}")
	tests := []struct {
		name     string
		mesh     []string
		config   string // MeshConfig
		timeout  string
		attempts uint32
		on       string
		avoid    int // predicates that avoid endpoints tried before
		hashed   int
	}{
		{name: "no VirtualService", mesh: []string{web}, timeout: "0s", attempts: 2, on: "connect-failure,refused-stream,unavailable,cancelled,retriable-status-codes", avoid: 1},
		{name: "default", mesh: []string{web, routes("{" + onward + "}")}, timeout: "0s", attempts: 2, on: "connect-failure,refused-stream,unavailable,cancelled,retriable-status-codes", avoid: 1},
		{name: "timeout", mesh: []string{web, routes("{timeout: 3s, " + onward + "}")}, timeout: "3s", attempts: 2, on: "connect-failure,refused-stream,unavailable,cancelled,retriable-status-codes", avoid: 1},
		{name: "retries", mesh: []string{web, routes("{retries: {attempts: 5, retryOn: 'reset,503'}, " + onward + "}")}, timeout: "0s", attempts: 5, on: "reset,retriable-status-codes", avoid: 1},
		{name: "retries off", mesh: []string{web, routes("{retries: {attempts: 0}, " + onward + "}")}, timeout: "0s"},
		{name: "of the mesh without a VirtualService", mesh: []string{web}, config: "defaultHttpRetryPolicy: {attempts: 7, retryOn: reset}", timeout: "0s", attempts: 7, on: "reset", avoid: 1},
		{name: "of the mesh", mesh: []string{web, routes("{" + onward + "}")}, config: "defaultHttpRetryPolicy: {attempts: 7, retryIgnorePreviousHosts: false}", timeout: "0s", attempts: 7, on: "connect-failure,refused-stream,unavailable,cancelled,retriable-status-codes"},
		{name: "off in the mesh", mesh: []string{web, routes("{" + onward + "}")}, config: "defaultHttpRetryPolicy: {attempts: 0}", timeout: "0s"},
		{name: "of several routes alike", mesh: []string{web, routes("{" + onward + "}, {match: [{uri: {prefix: /b}}], retries: {attempts: 0}, redirect: {uri: /c}}, {" + onward + "}")}, timeout: "0s", attempts: 2, on: "connect-failure,refused-stream,unavailable,cancelled,retriable-status-codes", avoid: 1},
		{name: "off at one of several routes", mesh: []string{web, routes("{match: [{uri: {exact: /x}}], " + onward + "}, {match: [{uri: {exact: /y}}], " + onward + "}, {retries: {attempts: 0}, " + onward + "}")}, timeout: "0s"},
		{name: "other ones at one of several routes", mesh: []string{web, routes("{match: [{uri: {exact: /x}}], " + onward + "}, {match: [{uri: {exact: /y}}], " + onward + "}, {retries: {attempts: 5, retryOn: reset}, " + onward + "}")}, timeout: "0s", attempts: 5, on: "reset", avoid: 1},
		{name: "retries outrank those of the mesh", mesh: []string{web, routes("{retries: {attempts: 5, retryOn: reset}, " + onward + "}")}, config: "defaultHttpRetryPolicy: {attempts: 0}", timeout: "0s", attempts: 5, on: "reset", avoid: 1},
		{name: "consistent hash without a VirtualService", mesh: []string{web, hash}, timeout: "0s", attempts: 2, on: "connect-failure,refused-stream,unavailable,cancelled,retriable-status-codes", hashed: 1},
		{name: "consistent hash", mesh: []string{web, hash, routes("{" + onward + "}")}, timeout: "0s", attempts: 2, on: "connect-failure,refused-stream,unavailable,cancelled,retriable-status-codes", hashed: 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := xdstest.NewWorld(t, tt.mesh...)
			if tt.config != "" {
				w.SetMesh(tt.config)
			}
			got := w.Simulate(xdstest.Node{}).Run(simulate.Request{Host: "web.example.com"})
			action := got.Action.GetRoute()
			if action == nil {
				t.Fatalf("no action: %s", got)
			}
			if d := action.GetTimeout().AsDuration().String(); d != tt.timeout {
				t.Errorf("timeout %s, want %s", d, tt.timeout)
			}
			retry := action.GetRetryPolicy()
			if n := retry.GetNumRetries().GetValue(); n != tt.attempts || retry.GetRetryOn() != tt.on {
				t.Errorf("%d retries on %q, want %d on %q", n, retry.GetRetryOn(), tt.attempts, tt.on)
			}
			if n := len(retry.GetRetryHostPredicate()); n != tt.avoid {
				t.Errorf("%d retry predicates, want %d", n, tt.avoid)
			}
			if n := len(action.GetHashPolicy()); n != tt.hashed {
				t.Errorf("%d hash policies, want %d", n, tt.hashed)
			}
		})
	}
}

// A proxy counts the requests of a route under the stat prefix of its match.
func TestStatPrefix(t *testing.T) {
	t.Parallel()
	s := xdstest.NewWorld(t, web, routes(
		"{match: [{uri: {prefix: /a}, statPrefix: a}, {uri: {prefix: /b}}], route: [{destination: {host: web.example.com}}]}")).Simulate(xdstest.Node{})
	for path, want := range map[string]string{"/a": "a", "/b": ""} {
		if got := s.Run(simulate.Request{Host: "web.example.com", Path: path}).Action.GetStatPrefix(); got != want {
			t.Errorf("%s: prefix %q, want %q", path, got, want)
		}
	}
}

// TestRouteNames: the names by which traces, logs and EnvoyFilters identify a route.
func TestRouteNames(t *testing.T) {
	t.Parallel()
	w := xdstest.NewWorld(t, web, reviews, routes(
		"{name: old, match: [{name: a, uri: {prefix: /a}}, {uri: {exact: /b}}], route: [{destination: {host: web.example.com}}]}, "+
			"{route: [{destination: {host: web.example.com}, weight: 1}, {destination: {host: reviews.example.com}, weight: 1}]}"))
	var got []string
	for _, v := range w.Simulate(xdstest.Node{}).Route("80").GetVirtualHosts() {
		for _, r := range v.GetRoutes() {
			config := r.GetMetadata().GetFilterMetadata()["istio"].GetFields()["config"].GetStringValue()
			got = append(got, v.GetName()+" "+r.GetName()+" "+r.GetDecorator().GetOperation()+" "+config)
		}
	}
	const config = "/apis/networking.istio.io/v1/namespaces/default/virtual-service/routes"
	want := []string{
		"reviews.example.com:80 default reviews.example.com:80/* ",
		"web.example.com:80 old.a web.example.com:80/a* " + config,
		"web.example.com:80 old web.example.com:80/b " + config,
		"web.example.com:80 default routes:80/* " + config,
		"allow_any allow_any  ",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

package generate_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/golden"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// everyRoute is a VirtualService with every served field of routes, for sidecars, a
// gateway and gRPC clients.
const everyRoute = `{hosts: [every.example.com], gateways: [mesh, edge/gw], http: [
  {name: exact, match: [{name: a, uri: {exact: /a}, ignoreUriCase: true}, {name: b, uri: {regex: '/b.*'}}],
   route: [{destination: {host: every.example.com}}], timeout: 3s, retries: {attempts: 0}},
  {match: [{uri: {prefix: /c}, headers: {X-User: {exact: jo}, x-any: {}, 'x-re': {regex: 'a.*'}}, withoutHeaders: {x-no: {}, x-not: {prefix: p}}}],
   route: [{destination: {host: every.example.com, subset: v1}, weight: 80, headers: {request: {set: {host: other.example.com, x-to: v1}}}},
           {destination: {host: every.example.com, subset: v2}, weight: 20}, {destination: {host: cart.shop.internal}, weight: 0}],
   headers: {request: {add: {x-a: '1'}, remove: [x-b]}, response: {set: {x-c: '2'}}},
   retries: {attempts: 5, retryOn: 'internal,reset,503,unavailable', perTryTimeout: 1s, backoff: 20ms, retryRemoteLocalities: true, retryIgnorePreviousHosts: false}},
  {match: [{method: {exact: POST}, authority: {prefix: every}, scheme: {exact: http}}], route: [{destination: {host: every.example.com}}],
   mirrors: [{destination: {host: every.example.com, subset: v3}, percentage: {value: 0.5}}, {destination: {host: cart.shop.internal}}],
   rewrite: {uri: /d, authority: new.example.com}},
  {match: [{queryParams: {q: {exact: '1'}}, port: 80}], route: [{destination: {host: every.example.com}}],
   corsPolicy: {allowOrigins: [{exact: 'https://a.example.com'}], allowMethods: [GET], maxAge: 60s},
   rewrite: {uriRegexRewrite: {match: '/e/(.*)', rewrite: '/f/\1'}}},
  {match: [{uri: {prefix: /g}}], redirect: {prefixRewrite: /h, authority: new.example.com, port: 8080, redirectCode: 307}},
  {match: [{uri: {prefix: /i}, sourceLabels: {app: cart}}], directResponse: {status: 418, body: {string: tea}}},
  {match: [{uri: {prefix: /j}, gateways: [edge/gw]}], directResponse: {status: 200, body: {bytes: /w==}}},
  {route: [{destination: {host: every.example.com, subset: v1}}], retries: {attempts: 3, retryOn: 'cancelled, 5xx'}}]}`

// TestGolden compares the version of every generated resource with testdata/versions.txt.
// A version is the hash of the bytes, so a refactoring does not change the file. After a
// change of behaviour run it with -update; the diff names the resources that changed.
func TestGolden(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	objects := variants()
	of := append(nodes(),
		xdstest.Node{DNSCapture: true, RouteDelta: true},
		xdstest.Node{Type: discovery.Router, Namespace: "edge", Labels: map[string]string{"istio": "gateway"}, RouteDelta: true},
		xdstest.Node{Type: discovery.Proxyless})
	for variant := range 3 {
		var documents []string
		for _, name := range slices.Sorted(maps.Keys(objects)) {
			documents = append(documents, objects[name][min(variant, len(objects[name])-1)])
		}
		hash := []string{"httpHeaderName: x-user", "useSourceIp: true", "httpCookie: {name: c, path: /, ttl: 1s}"}[variant]
		documents = append(documents,
			xdstest.HTTPService("every", "every.example.com", "10.4.0.1", "10.4.0.2"),
			xdstest.Object("VirtualService", "every", everyRoute),
			xdstest.Object("DestinationRule", "every", "{host: every.example.com, trafficPolicy: {loadBalancer: {consistentHash: {"+hash+"}}}, subsets: [{name: v1}, {name: v2}, {name: v3}]}"))
		w := xdstest.NewWorld(t, documents...)
		for i, n := range of {
			fmt.Fprintf(&out, "# variant %d, node %d: %s %s %s\n", variant, i, n.Type, n.Namespace, n.Interception)
			for _, r := range w.Build(n, generate.For(catalogue.Types(), n.Proxy(t).Type)...) {
				kind := r.Body.GetTypeUrl()[strings.LastIndexByte(r.Body.GetTypeUrl(), '.')+1:]
				fmt.Fprintf(&out, "%s %s %s\n", kind, r.Name, r.Version)
			}
		}
	}
	golden.Assert(t, out.String(), "versions.txt")
}

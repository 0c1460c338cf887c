package integration

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// manyRoutes is a VirtualService with a route for every supported feature.
const manyRoutes = `
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: reviews, namespace: shop}
spec:
  hosts: [$host]
  gateways: [edge, mesh]
  http:
  - name: exact
    match: [{uri: {exact: /exact}}]
    route: [{destination: {host: $host, subset: v2}}]
  - name: prefix
    match: [{uri: {prefix: /api/}}]
    rewrite: {uri: /v9/}
    route: [{destination: {host: $host, subset: v2}}]
  - name: regex
    match: [{uri: {regex: "/item/[0-9]+"}}]
    route: [{destination: {host: $host, subset: v2}}]
  - name: header
    match: [{headers: {x-user: {exact: anna}}}]
    route: [{destination: {host: $host, subset: v2}}]
  - name: method
    match: [{method: {exact: POST}}]
    route: [{destination: {host: $host, subset: v2}}]
  - name: redirect
    match: [{uri: {exact: /old}}]
    redirect: {uri: /new, redirectCode: 302}
  - name: direct
    match: [{uri: {exact: /teapot}}]
    directResponse: {status: 418, body: {string: short and stout}}
  - name: slow
    match: [{uri: {exact: /slow}}]
    timeout: 0.3s
    route: [{destination: {host: $host, subset: v2}}]
  - name: flaky
    match: [{uri: {exact: /flaky}}]
    retries: {attempts: 3, perTryTimeout: 2s, retryOn: 5xx}
    route: [{destination: {host: $host, subset: v2}}]
  - name: once
    match: [{uri: {exact: /once}}]
    retries: {attempts: 0}
    route: [{destination: {host: $host, subset: v2}}]
  - name: rehost
    match: [{uri: {exact: /rehost}}]
    rewrite: {authority: other.test}
    route: [{destination: {host: $host, subset: v2}}]
  - name: weighted
    match: [{uri: {exact: /weighted}}]
    route:
    - {destination: {host: $host, subset: v1}, weight: 30}
    - {destination: {host: $host, subset: v2}, weight: 70}
  - route: [{destination: {host: $host, subset: v1}}]
`

// tunedRule has all supported fields of a traffic policy.
const tunedRule = `
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: reviews, namespace: shop}
spec:
  host: $host
  trafficPolicy:
    loadBalancer: {simple: ROUND_ROBIN}
    connectionPool: {tcp: {connectTimeout: 3.5s}, http: {http1MaxPendingRequests: 77}}
  subsets:
  - {name: v1, labels: {version: v1}}
  - {name: v2, labels: {version: v2}}
`

// TestEnvoyRouting sends a request through every kind of route, at a gateway and at a sidecar.
func TestEnvoyRouting(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, x := startServer(t, serverOptions{}), newShop(t)
		s.apply(x.entry(x.v1, x.v2), x.door(), fill(tunedRule, "$host", shopHost), fill(manyRoutes, "$host", shopHost))
		edge, client := s.startPair(v)
		for name, port := range map[string]int{"gateway": x.gateway, "sidecar": x.service} {
			t.Run(name, func(t *testing.T) {
				awaitReply(t, request{port: port, host: shopHost}, "v1")
				expectRoutes(t, port)
			})
		}
		if got := send(t, request{port: x.gateway, host: "elsewhere.test"}); got.status != http.StatusNotFound {
			t.Errorf("a host that the gateway does not serve: %d", got.status)
		}
		edge.awaitConfig(`"connect_timeout": "3.500s"`)
		client.awaitConfig(`"max_pending_requests": 77`)
		s.expectNothingRejected()
		edge.expectNothingRejected()
		client.expectNothingRejected()
	})
}

// expectRoutes sends a request of each kind to a port.
func expectRoutes(t *testing.T, port int) {
	for _, c := range []struct {
		name string
		q    request
		want string
	}{
		{"uri exact", request{path: "/exact"}, "v2 /exact"},
		{"uri exact is exact", request{path: "/exactly"}, "v1 /exactly"},
		{"uri prefix, rewritten", request{path: "/api/list?q=1"}, "v2 /v9/list?q=1"},
		{"uri regex", request{path: "/item/42"}, "v2 /item/42"},
		{"uri regex matches whole", request{path: "/item/42x"}, "v1 /item/42x"},
		{"header", request{header: map[string]string{"x-user": "anna"}}, "v2 /"},
		{"header differs", request{header: map[string]string{"x-user": "ben"}}, "v1 /"},
		{"method", request{method: http.MethodPost}, "v2 /"},
		{"redirect", request{path: "/old"}, "302 http://" + shopHost + "/new"},
		{"direct response", request{path: "/teapot"}, "418 short and stout"},
		{"timeout", request{path: "/slow", header: map[string]string{"x-delay": "3s"}}, "504"},
		{"within the timeout", request{path: "/slow"}, "v2 /slow"},
		{"retries", request{path: "/flaky", header: caseHeader(port, "a", 2)}, "v2 /flaky attempt 3"},
		{"retries end", request{path: "/flaky", header: caseHeader(port, "b", 9)}, "503"},
		{"no retries", request{path: "/once", header: caseHeader(port, "c", 1)}, "503"},
		{"authority rewritten", request{path: "/rehost"}, "v2 /rehost host other.test"},
		{"default", request{path: "/any"}, "v1 /any"},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := c.q
			q.port, q.host = port, shopHost
			began := time.Now()
			got := send(t, q)
			if text := describe(got); !strings.HasPrefix(text, c.want) {
				t.Errorf("got %q, want %q", text, c.want)
			}
			if took := time.Since(began); strings.HasPrefix(c.want, "504") && late(took, 2*time.Second) {
				t.Errorf("the timeout took %s", took)
			}
		})
	}
	t.Run("weights", func(t *testing.T) {
		l := startLoad(t, "weighted", request{port: port, host: shopHost, path: "/weighted"})
		expectShare(t, "70 of 100", l.sample(250), "v2", 70)
		l.expectUnharmed()
	})
}

// caseHeader returns headers that make an upstream fail some of the requests of a case.
func caseHeader(port int, name string, failures int) map[string]string {
	return map[string]string{"x-case": fmt.Sprint(port, name), "x-fail": fmt.Sprint(failures)}
}

// describe returns a reply as one line.
func describe(r reply) string {
	switch {
	case r.echo.Upstream == "":
		return strings.TrimSpace(fmt.Sprintf("%d %s%s", r.status, r.location, r.body))
	case r.echo.Host != shopHost:
		return fmt.Sprintf("%s %s host %s", r.echo.Upstream, r.echo.Path, r.echo.Host)
	case r.echo.Header.Get("x-case") != "":
		return fmt.Sprintf("%s %s attempt %d", r.echo.Upstream, r.echo.Path, r.echo.Attempt)
	}
	return r.echo.Upstream + " " + r.echo.Path
}

// TestEnvoyServicesWithoutRoutes calls services without a VirtualService by their hosts,
// several on one port.
func TestEnvoyServicesWithoutRoutes(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s := startServer(t, serverOptions{})
		port := freePort(t)
		one, two := startUpstream(t, "one"), startUpstream(t, "two")
		const entry = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: $name, namespace: shop}
spec:
  hosts: [$name.shop.test]
  location: MESH_INTERNAL
  resolution: $resolution
  ports: [{number: $port, name: http, protocol: $protocol}]
  endpoints: [{address: $address, ports: {http: $target}}]
`
		s.apply(
			fill(entry, "$protocol", "HTTP", "$name", "one", "$resolution", "STATIC", "$address", "127.0.0.1", "$port", port, "$target", one.port),
			fill(entry, "$protocol", "HTTP2", "$name", "two", "$resolution", "DNS", "$address", "localhost", "$port", port, "$target", two.port),
		)
		client := s.startEnvoy(envoyOptions{kind: "sidecar", name: "client", variant: v})
		awaitReply(t, request{port: port, host: "one.shop.test"}, "one")
		awaitReply(t, request{port: port, host: "two.shop.test"}, "two")
		awaitReply(t, request{port: port, host: "two.shop.test:" + fmt.Sprint(port)}, "two")
		expectEqual(t, "protocol to a port of HTTP", send(t, request{port: port, host: "one.shop.test"}).echo.Proto, "HTTP/1.1")
		expectEqual(t, "protocol to a port of HTTP2", send(t, request{port: port, host: "two.shop.test"}).echo.Proto, "HTTP/2.0")
		s.expectNothingRejected()
		client.expectNothingRejected()
	})
}

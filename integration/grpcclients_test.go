package integration

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// grpcRoutes has a route for each feature of a VirtualService that gRPC supports.
const grpcRoutes = `
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: reviews, namespace: shop}
spec:
  hosts: [$host]
  http:
  - match: [{uri: {exact: /shop.Reviews/Exact}}, {uri: {prefix: /shop.Api/}}, {uri: {regex: "/shop\\.Item/Get[0-9]+"}}]
    route: [{destination: {host: $host, subset: v2}}]
  - match: [{headers: {x-user: {exact: anna}}}, {headers: {x-group: {prefix: beta-}, x-any: {}}}]
    route: [{destination: {host: $host, subset: v2}}]
  - match: [{uri: {exact: /shop.Reviews/Others}, withoutHeaders: {x-user: {exact: bob}}}]
    route: [{destination: {host: $host, subset: v2}}]
  - match: [{uri: {exact: /shop.Reviews/Posted}, method: {exact: POST}, authority: {prefix: reviews}}]
    route: [{destination: {host: $host, subset: v2}}]
  - match: [{uri: {exact: /shop.Reviews/Slow}}]
    timeout: 2s
    route: [{destination: {host: $host, subset: v2}}]
  - match: [{uri: {exact: /shop.Reviews/Flaky}}]
    retries: {attempts: 3, retryOn: "unavailable,5xx"}
    route: [{destination: {host: $host, subset: v2}}]
  - match: [{uri: {exact: /shop.Reviews/Once}}]
    retries: {attempts: 0}
    route: [{destination: {host: $host, subset: v2}}]
  - match: [{uri: {exact: /shop.Reviews/More}, statPrefix: more}]
    mirror: {host: $host, subset: v9}
    corsPolicy: {allowOrigins: [{exact: "*"}]}
    rewrite: {uri: /shop.Reviews/Less}
    route: [{destination: {host: $host, subset: v2}}]
  - match: [{uri: {exact: /shop.Reviews/Moved}}]
    redirect: {uri: /shop.Reviews/Exact}
  - match: [{uri: {exact: /shop.Reviews/Missing}}]
    route: [{destination: {host: $host, subset: v9}}]
  - match: [{uri: {exact: /shop.Reviews/Weighted}}]
    route:
    - {destination: {host: $host, subset: v1}, weight: 30}
    - {destination: {host: $host, subset: v2}, weight: 70}
  - route: [{destination: {host: $host, subset: v1}}]
`

// TestGRPCRouting makes a call through every kind of route, in each language.
func TestGRPCRouting(t *testing.T) {
	g := startGRPCScene(t, serverOptions{}, fill(grpcRoutes, "$host", shopHost))
	g.addClients(g.xds, guestLanguages(t)...)
	for _, c := range g.clients {
		t.Run(c.name, func(t *testing.T) {
			awaitReply(t, c.call(anyMethod), "v1")
			expectGRPCRoutes(t, c)
		})
	}
	g.awaitClients(g.revision())
	g.expectUnharmed(nil)
}

func expectGRPCRoutes(t *testing.T, c *grpcClient) {
	for _, tc := range []struct {
		name, method string
		metadata     []string
		want         string
		attempt      int
	}{
		{name: "exact", method: "/shop.Reviews/Exact", want: "v2"},
		{name: "prefix", method: "/shop.Api/Any", want: "v2"},
		{name: "regex", method: "/shop.Item/Get17", want: "v2"},
		{name: "another regex", method: "/shop.Item/Get", want: "v1"},
		{name: "header", method: anyMethod, metadata: []string{"x-user", "anna"}, want: "v2"},
		{name: "another header", method: anyMethod, metadata: []string{"x-user", "bob"}, want: "v1"},
		{name: "two headers", method: anyMethod, metadata: []string{"x-group", "beta-7", "x-any", "1"}, want: "v2"},
		{name: "one of two headers", method: anyMethod, metadata: []string{"x-group", "beta-7"}, want: "v1"},
		{name: "without a header that is missing", method: "/shop.Reviews/Others", want: "v2"},
		{name: "without a header of another value", method: "/shop.Reviews/Others", metadata: []string{"x-user", "jo"}, want: "v2"},
		{name: "without a header that is there", method: "/shop.Reviews/Others", metadata: []string{"x-user", "bob"}, want: "v1"},
		{name: "method and authority", method: "/shop.Reviews/Posted", want: "v2"},
		{name: "in time", method: "/shop.Reviews/Slow", want: "v2"},
		{name: "too late", method: "/shop.Reviews/Slow", metadata: []string{"x-delay", "8s"}, want: fmt.Sprint(http.StatusGatewayTimeout)},
		{name: "retried", method: "/shop.Reviews/Flaky", metadata: []string{"x-case", c.name + "-flaky", "x-fail", "2"}, want: "v2", attempt: 3},
		{name: "not retried", method: "/shop.Reviews/Once", metadata: []string{"x-case", c.name + "-once", "x-fail", "1"}, want: fmt.Sprint(http.StatusServiceUnavailable)},
		{name: "what no client takes", method: "/shop.Reviews/More", want: "v2"},
		{name: "a redirect", method: "/shop.Reviews/Moved", want: fmt.Sprint(http.StatusServiceUnavailable)},
		{name: "a subset that is missing", method: "/shop.Reviews/Missing", want: fmt.Sprint(http.StatusServiceUnavailable)},
	} {
		got := send(t, c.call(tc.method, tc.metadata...))
		if got.String() != tc.want || tc.attempt > 0 && got.echo.Attempt != tc.attempt {
			t.Errorf("%s: %s, attempt %d, want %s, attempt %d: %s", tc.name, got, got.echo.Attempt, tc.want, tc.attempt, got.body)
		}
	}
	shares := map[string]int{}
	for range 400 {
		shares[send(t, c.call("/shop.Reviews/Weighted")).String()]++
	}
	expectShare(t, "weights", shares, "v1", 30)
}

// TestGRPCEndpoints removes a server from the service before it stops it, and adds another. No
// call fails.
func TestGRPCEndpoints(t *testing.T) {
	t.Parallel()
	g := startGRPCScene(t, serverOptions{})
	v3 := startGRPCBackend(t, "v3")
	loads := g.startLoads()
	awaitAnswers(t, loads, "v1", "v2")
	g.awaitClients(g.apply(grpcEntry(g.v1, g.v2, v3)))
	awaitAnswers(t, loads, "v1", "v2", "v3")

	g.awaitClients(g.apply(grpcEntry(g.v1, v3)))
	awaitAnswers(t, loads, "v1", "v3")
	if err := g.v2.process.Terminate(t, patience); err != nil {
		t.Errorf("v2 ended with %v", err)
	}
	v4 := startGRPCBackend(t, "v4")
	g.awaitClients(g.apply(grpcEntry(g.v1, v3, v4)))
	awaitAnswers(t, loads, "v1", "v3", "v4")
	g.expectUnharmed(loads)
}

// awaitAnswers waits until exactly these backends answer the calls of each load.
func awaitAnswers(t testing.TB, loads []*load, names ...string) {
	t.Helper()
	for _, l := range loads {
		eventually(t, l.name+" is answered by "+strings.Join(names, ", "), func() error {
			var got []string
			for name := range l.sample(60) {
				got = append(got, name)
			}
			if slices.Sort(got); !slices.Equal(got, names) {
				return fmt.Errorf("by %v", got)
			}
			return nil
		})
	}
}

// TestGRPCFlips moves all calls fifty times: to a service that the clients do not know yet, to
// another subset, and to a subset that the rule gets in the same change, which also removes the
// former one. No call fails, and none is retried.
func TestGRPCFlips(t *testing.T) {
	t.Parallel()
	g := startGRPCScene(t, serverOptions{}, grpcOnlyTo(shopHost, "v1"), grpcEntryOf("other", startGRPCBackend(t, "other")))
	loads := g.startLoads()
	for i := range 50 {
		to, name := grpcOnlyTo(shopHost, "v1"), "v1"
		switch i % 6 {
		case 0, 4:
			to, name = grpcOnlyTo("other.shop.test", ""), "other"
		case 2:
			to, name = grpcOnlyTo(shopHost, fmt.Sprint("f", i)), "v2"
		}
		rule := g.shop.rule()
		if i%6 == 2 {
			rule += fmt.Sprintf("  - {name: f%d, labels: {version: v2}}\n", i)
		}
		if i%5 == 0 { // some changes come before the clients have the previous one
			g.apply(rule, to)
		} else {
			g.moveTo(loads, name, rule, to)
		}
	}
	g.awaitClients(g.revision())
	awaitAnswers(t, loads, "v1")
	g.expectUnharmed(loads)
}

// TestGRPCDelegates: calls take the routes of a delegate. The matches of its root apply too. An
// edit of the delegate makes no call fail. A route that delegates to nothing is left out.
func TestGRPCDelegates(t *testing.T) {
	t.Parallel()
	root := fill(`
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: reviews, namespace: shop}
spec:
  hosts: [$host]
  http:
  - {match: [{uri: {prefix: /shop.Gone}}], delegate: {name: gone, namespace: team}}
  - {match: [{uri: {prefix: /shop.Reviews}}], delegate: {name: api, namespace: team}}
  - route: [{destination: {host: $host, subset: v1}}]
`, "$host", shopHost)
	api := func(subset string) string {
		return delegate("api", `http: [
  {match: [{headers: {x-user: {exact: anna}}}], route: [{destination: {host: $host, subset: v2}}]},
  {retries: {attempts: 0}, route: [{destination: {host: $host, subset: `+subset+`}}]}]`)
	}
	g := startGRPCScene(t, serverOptions{}, root, api("v1"))
	for _, c := range g.clients {
		awaitReply(t, c.call(anyMethod), "v1")
		expectEqual(t, c.name+": what a header chooses", send(t, c.call(anyMethod, "x-user", "anna")).String(), "v2")
		expectEqual(t, c.name+": what the root does not delegate", send(t, c.call("/shop.Api/Any", "x-user", "anna")).String(), "v1")
		expectEqual(t, c.name+": a delegate that is gone", send(t, c.call("/shop.Gone/Any")).String(), "v1")
	}
	loads := g.startLoads()
	g.moveTo(loads, "v2", api("v2"))
	g.moveTo(loads, "v1", api("v1"))
	for _, c := range g.clients {
		expectEqual(t, c.name+": what a header chooses, after the edits", send(t, c.call(anyMethod, "x-user", "anna")).String(), "v2")
	}
	g.expectUnharmed(loads)
}

// grpcOnlyTo routes all calls of the service to a host, without retries.
func grpcOnlyTo(host, subset string) string {
	return fill(`
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: reviews, namespace: shop}
spec:
  hosts: [$host]
  http:
  - retries: {attempts: 0}
    route: [{destination: {host: $to, subset: "$subset"}}]
`, "$host", shopHost, "$to", host, "$subset", subset)
}

// TestGRPCUnknownTargets calls an unknown service. The call fails at once instead of waiting
// for resources, and succeeds once the service exists.
func TestGRPCUnknownTargets(t *testing.T) {
	t.Parallel()
	g := startGRPCScene(t, serverOptions{})
	late := fill(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: late, namespace: shop}
spec:
  hosts: [late.shop.test]
  resolution: STATIC
  ports: [{number: 8080, name: grpc, protocol: GRPC}]
  endpoints: [{address: 127.0.0.1, ports: {grpc: $port}}]
`, "$port", g.v1.port)
	unavailable := fmt.Sprint(http.StatusServiceUnavailable)
	call := func(c *grpcClient) request {
		return request{port: c.port, host: "late.shop.test:8080", path: anyMethod}
	}
	for _, c := range g.clients {
		began := time.Now()
		// The client program gives a call ten seconds, and the library a resource fifteen.
		if got := send(t, call(c)); got.String() != unavailable {
			t.Errorf("%s: after %s: %s: %s", c.name, time.Since(began), got, got.body)
		}
	}
	g.apply(late)
	for _, c := range g.clients {
		awaitReply(t, call(c), "v1")
	}
	g.remove(late)
	for _, c := range g.clients {
		awaitReply(t, call(c), unavailable)
		if got := send(t, c.call(anyMethod)); got.status != http.StatusOK {
			t.Errorf("%s: the other target: %s", c.name, got.body)
		}
	}
	g.expectUnharmed(nil)
}

// TestGRPCServer runs a server that the control plane configures. It accepts calls whether the
// mesh knows it or not, and continues without the control plane once it has its configuration.
func TestGRPCServer(t *testing.T) {
	t.Parallel()
	g := startGRPCScene(t, serverOptions{})
	managed := startGRPCBackend(t, "managed", g.grpcBootstrap("managed", "127.0.0.1", g.xds))
	eventually(t, "the server serves", func() error {
		if !strings.Contains(managed.process.Output(), "SERVING") {
			return fmt.Errorf("it says %q", managed.process.Output())
		}
		return nil
	})
	loads := g.startLoads()
	g.awaitClients(g.apply(grpcEntry(managed)))
	awaitAnswers(t, loads, "managed")
	connected, err := g.proxies()
	if err != nil {
		t.Fatal(err)
	}
	expectEqual(t, "the type of the server", connected["managed"].Type, "grpc")

	g.kill()
	for _, l := range loads {
		expectShare(t, l.name+" without a control plane", l.sample(50), "managed", 100)
	}
	g.start()
	g.awaitClients(g.apply(grpcEntry(g.v1)))
	awaitAnswers(t, loads, "v1")
	for _, l := range loads {
		l.expectUnharmed()
	}
	g.expectNothingRejected()
}

package integration

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// shadowHost is a service that gets mirrored requests.
const shadowHost = "shadow.shop.test"

// entryOf is a service on the shop's port, with one endpoint.
func (s *shop) entryOf(name, host string, u *upstream) string {
	return fill(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: $name, namespace: shop}
spec:
  hosts: [$host]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: $port, name: http, protocol: HTTP}]
  endpoints: [{address: 127.0.0.1, ports: {http: $target}}]
`, "$name", name, "$host", host, "$port", s.service, "$target", u.port)
}

// http is the VirtualService of the shop with some HTTP routes, for the gateway and for
// sidecars.
func (s *shop) http(routes string) string {
	document := fill(`
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: reviews, namespace: shop}
spec: {hosts: [$host], gateways: [edge, mesh], http: [$routes]}
`, "$routes", routes)
	return fill(document, "$host", shopHost, "$shadow", shadowHost)
}

// TestEnvoyMirrors: a gateway and a sidecar mirror requests to other services: all, a share, or
// none.
func TestEnvoyMirrors(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, x := startServer(t, serverOptions{}), newShop(t)
		shadow := startUpstream(t, "shadow")
		to := func(mirror string) string { return x.http("{route: [{destination: {host: $host}}], " + mirror + "}") }
		s.apply(x.entry(x.v1), x.entryOf("shadow", shadowHost, shadow), x.door(), to("mirror: {host: $shadow}"))
		edge, client := s.startPair(v)
		// copies sends n requests, and returns how many mirrored requests arrived.
		copies := func(name string, q request, n int) int {
			q.header = map[string]string{"x-case": name}
			for range n {
				expectEqual(t, name, send(t, q).String(), "v1")
			}
			return shadow.attemptsOf(name)
		}
		for at, q := range map[string]request{"gateway": x.atGateway("/"), "sidecar": x.atSidecar("/")} {
			awaitReply(t, q, "v1")
			copies("all at a "+at, q, 20)
			eventually(t, "all requests are copied", func() error {
				if got := shadow.attemptsOf("all at a " + at); got != 20 {
					return fmt.Errorf("%d of 20", got)
				}
				return nil
			})
			expectEqual(t, "the host of copies at a "+at, shadow.hostOf("all at a "+at), send(t, q).echo.Host)
		}
		const n = 300
		s.awaitSynced(s.apply(to("mirrors: [{destination: {host: $shadow}, percentage: {value: 25}}, {destination: {host: $host}, percentage: {value: 0}}]")), "edge", "client")
		copies("a share", x.atSidecar("/"), n)
		eventually(t, "a quarter of the requests is copied", func() error {
			if got := shadow.attemptsOf("a share"); got < n/4-40 || got > n/4+40 {
				return fmt.Errorf("%d of %d", got, n)
			}
			return nil
		})
		s.awaitSynced(s.apply(to("mirror: {host: $shadow}, mirrorPercentage: {value: 0}")), "edge", "client")
		if got := copies("none", x.atSidecar("/"), 20); got != 0 {
			t.Errorf("0 %%: %d copies", got)
		}
		// A mirror without endpoints harms no request.
		s.awaitSynced(s.apply(to("mirror: {host: nobody.shop.test}")), "edge", "client")
		copies("to nobody", x.atSidecar("/"), 5)
		s.expectNothingRejected()
		edge.expectNothingRejected()
		client.expectNothingRejected()
	})
}

// TestEnvoyCORS: a gateway and a sidecar answer preflight requests of browsers, and mark
// responses with the origins that may read them.
func TestEnvoyCORS(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, x := startServer(t, serverOptions{}), newShop(t)
		with := func(policy string) string {
			return x.http("{route: [{destination: {host: $host}}], corsPolicy: {allowOrigins: [{exact: 'https://a.test'}, {regex: 'https://b[0-9].test'}], " + policy + "}}")
		}
		s.apply(x.entry(x.v1), x.door(), with("allowMethods: [GET, PUT], allowHeaders: [x-a, x-b], exposeHeaders: [x-c], maxAge: 60s, allowCredentials: true"))
		edge, client := s.startPair(v)
		listeners := edge.mustHold()
		asks := func(q request, origin string) request {
			q.method, q.header = http.MethodOptions, map[string]string{"Origin": origin, "Access-Control-Request-Method": "PUT"}
			return q
		}
		expect := func(name string, got reply, status string, header map[string]string) {
			t.Helper()
			expectEqual(t, name, got.String(), status)
			for _, h := range []string{"Allow-Origin", "Allow-Methods", "Allow-Headers", "Expose-Headers", "Max-Age", "Allow-Credentials"} {
				expectEqual(t, name+", Access-Control-"+h, got.header.Get("Access-Control-"+h), header[h])
			}
		}
		for at, q := range map[string]request{"gateway": x.atGateway("/"), "sidecar": x.atSidecar("/")} {
			awaitReply(t, q, "v1")
			expect(at+", preflight", send(t, asks(q, "https://a.test")), "200", map[string]string{
				"Allow-Origin": "https://a.test", "Allow-Methods": "GET,PUT", "Allow-Headers": "x-a,x-b", "Expose-Headers": "x-c", "Max-Age": "60", "Allow-Credentials": "true",
			})
			expect(at+", preflight of another origin", send(t, asks(q, "https://c.test")), "v1", nil)
			q.header = map[string]string{"Origin": "https://b7.test"}
			expect(at+", request", send(t, q), "v1", map[string]string{"Allow-Origin": "https://b7.test", "Expose-Headers": "x-c", "Allow-Credentials": "true"})
		}
		s.awaitSynced(s.apply(with("unmatchedPreflights: IGNORE")), "edge", "client")
		expect("answered", send(t, asks(x.atSidecar("/"), "https://c.test")), "200", nil)
		for name, h := range edge.mustHold() {
			if before, ok := listeners[name]; ok && name == fmt.Sprintf("listeners 127.0.0.1_%d", x.gateway) && before != h {
				t.Errorf("%s was sent again for a policy: %v, then %v", name, before, h)
			}
		}
		s.expectNothingRejected()
		edge.expectNothingRejected()
		client.expectNothingRejected()
	})
}

// TestEnvoyRetries counts the attempts of requests: with the retry policy of the mesh, with
// that of a route, and by default, when only requests that no endpoint received are retried.
func TestEnvoyRetries(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, x := startServer(t, serverOptions{meshConfig: "defaultHttpRetryPolicy: {attempts: 4, retryOn: '503'}"}), newShop(t)
		s.apply(x.entry(x.v1), x.door(), x.http(`{match: [{uri: {prefix: /once}}], route: [{destination: {host: $host}}], retries: {attempts: 1, retryOn: 5xx}},
			{match: [{uri: {prefix: /never}}], route: [{destination: {host: $host}}], retries: {attempts: 0}}, {route: [{destination: {host: $host}}]}`))
		edge, client := s.startPair(v)
		awaitReply(t, x.atGateway("/"), "v1")
		awaitReply(t, x.atSidecar("/"), "v1")
		expect := func(mesh string, tries map[string]int) {
			t.Helper()
			for path, n := range tries {
				for at, q := range map[string]request{"gateway": x.atGateway(path), "sidecar": x.atSidecar(path)} {
					name := mesh + at + path
					q.header = map[string]string{"x-case": name, "x-fail": "100"}
					expectEqual(t, name, send(t, q).String(), "503")
					expectEqual(t, name+", tries", x.v1.attemptsOf(name), n)
				}
			}
		}
		expect("", map[string]int{"/": 5, "/once": 2, "/never": 1})
		// Here the policy of the mesh stands at the virtual host, for the routes that share it.
		s.awaitSynced(s.apply(x.http(`{match: [{uri: {prefix: /once}}], route: [{destination: {host: $host}}], retries: {attempts: 1, retryOn: 5xx}},
			{match: [{uri: {prefix: /too}}], route: [{destination: {host: $host}}]}, {route: [{destination: {host: $host}}]}`)), "edge", "client")
		expect("shared ", map[string]int{"/": 5, "/once": 2, "/too": 5})
		s.expectNothingRejected()
		edge.expectNothingRejected()
		client.expectNothingRejected()
	})
}

// TestEnvoyRetriesAnotherEndpoint: without any setting, a request that one endpoint did not
// accept goes to another.
func TestEnvoyRetriesAnotherEndpoint(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, x := startServer(t, serverOptions{}), newShop(t)
		x.v2.stop()
		s.apply(x.entry(x.v1, x.v2))
		client := s.startEnvoy(envoyOptions{kind: "sidecar", name: "client", variant: v})
		awaitReply(t, x.atSidecar("/"), "v1")
		// An Envoy looks five times for a host that it has not tried yet, as Istio tells it to: once in
		// two thousand requests both retries find the dead one again.
		if got := answers(t, x.atSidecar("/"), 50); got["v1"] < 48 {
			t.Errorf("one of two endpoints does not listen: %v", got)
		}
		s.expectNothingRejected()
		client.expectNothingRejected()
	})
}

// TestEnvoyNames calls a service by all of its names. For a while, another service and a
// VirtualService take over some of them.
func TestEnvoyNames(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, x := startServer(t, serverOptions{meshConfig: "outboundTrafficPolicy: {mode: REGISTRY_ONLY}"}), newShop(t)
		const long, short = "reviews.shop.svc.cluster.local", "reviews.shop"
		s.apply(x.entryOf("long", long, x.v1))
		client := s.startEnvoy(envoyOptions{kind: "sidecar", name: "client", variant: v})
		expect := func(want map[string]string) {
			t.Helper()
			for h, name := range want {
				awaitReply(t, request{port: x.service, host: h}, name)
			}
		}
		all := map[string]string{
			long: "v1", long + ".": "v1", fmt.Sprintf("%s:%d", long, x.service): "v1", short: "v1", short + ".svc": "v1", "reviews": "v1",
			fmt.Sprintf("reviews:%d", x.service): "v1", "reviews.blog": "502", "shop.svc.cluster.local": "502",
		}
		expect(all)
		for range 3 {
			s.awaitSynced(s.apply(x.entryOf("short", short, x.v2)), "client")
			expect(map[string]string{long: "v1", "reviews": "v1", short: "v2", short + ".": "v2"})
			s.must("", "delete", "serviceentry", "short", "-n", "shop")
			s.awaitSynced(s.revision(), "client")
			expect(all)
		}
		s.expectNothingRejected()
		client.expectNothingRejected()
	})
}

// TestEnvoyMirrorFlipsUnderLoad adds and removes a service and the mirror to it in one batch,
// while requests run. No request fails, and after the first mirrored request all are mirrored.
func TestEnvoyMirrorFlipsUnderLoad(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, x := startServer(t, serverOptions{}), newShop(t)
		shadow := startUpstream(t, "shadow")
		const plain, mirrored = "{route: [{destination: {host: $host}}]}", "{route: [{destination: {host: $host}}], mirror: {host: $shadow}}"
		s.apply(x.entry(x.v1), x.http(plain))
		client := s.startEnvoy(envoyOptions{kind: "sidecar", name: "client", variant: v})
		awaitReply(t, x.atSidecar("/"), "v1")
		l := startLoad(t, "sidecar", x.atSidecar("/"))
		for i := range 8 {
			s.awaitSynced(s.apply(x.entryOf("shadow", shadowHost, shadow), x.http(mirrored)), "client")
			copied := func(name string, n int) error {
				q := x.atSidecar("/")
				q.header = map[string]string{"x-case": name}
				for range n {
					expectEqual(t, name, send(t, q).String(), "v1")
				}
				if got := shadow.attemptsOf(name); got < n {
					return fmt.Errorf("%d copies", got)
				}
				return nil
			}
			eventually(t, "a request is copied", func() error { return copied(fmt.Sprint(v, i), 1) })
			_ = copied(fmt.Sprint(v, i, "all"), 10)
			eventually(t, "all requests are copied", func() error {
				if got := shadow.attemptsOf(fmt.Sprint(v, i, "all")); got != 10 {
					return fmt.Errorf("%d of 10", got)
				}
				return nil
			})
			s.apply(x.http(plain))
			s.must("", "delete", "serviceentry", "shadow", "-n", "shop")
			s.awaitSynced(s.revision(), "client")
		}
		client.awaitCluster(fmt.Sprintf("outbound|%d||%s", x.service, shadowHost), false)
		l.expectUnharmed()
		s.expectNothingRejected()
		client.expectNothingRejected()
	})
}

package integration

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// TestEnvoyDynamicDNS: a sidecar and a gateway look up the host of each request. Resolvers map
// all names below localhost to the machine itself, without a DNS server.
func TestEnvoyDynamicDNS(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, x := startServer(t, serverOptions{}), newShop(t)
		s.apply(fill(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: outside, namespace: shop}
spec:
  hosts: ["*.localhost"]
  location: MESH_EXTERNAL
  resolution: DYNAMIC_DNS
  ports: [{number: $port, name: http, protocol: HTTP}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: outside, namespace: shop}
spec:
  hosts: ["*.localhost"]
  gateways: [edge, mesh]
  http:
  - match: [{uri: {prefix: /elsewhere}}]
    rewrite: {authority: "never-called.localhost:$v2"}
    route: [{destination: {host: "*.localhost", port: {number: $port}}}]
  - route: [{destination: {host: "*.localhost", port: {number: $port}}}]
`, "$port", x.service, "$v2", x.v2.port), edgeGateway(x.gateway, "*"))
		edge, client := s.startPair(v)
		for name, port := range map[string]int{"sidecar": x.service, "gateway": x.gateway} {
			for _, u := range []*upstream{x.v1, x.v2} {
				awaitReply(t, request{port: port, host: fmt.Sprintf("%s-%s.localhost:%d", u.name, name, u.port)}, u.name)
			}
			awaitReply(t, request{port: port, host: fmt.Sprintf("v1-%s.localhost:%d", name, x.v1.port), path: "/elsewhere"}, "v2")
		}

		s.awaitSynced(s.apply(fill(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: outside, namespace: shop}
spec:
  hosts: ["*.localhost"]
  resolution: STATIC
  ports: [{number: $port, name: http, protocol: HTTP}]
  endpoints: [{address: 127.0.0.1, ports: {http: $target}}]
`, "$port", x.service, "$target", x.v2.port)), "client", "edge")
		awaitReply(t, request{port: x.service, host: fmt.Sprintf("v1.localhost:%d", x.v1.port)}, "v2")
		s.expectNothingRejected()
		client.expectNothingRejected()
		edge.expectNothingRejected()
	})
}

// TestEnvoyDynamicDNSOverTLS: a sidecar looks up the SNI of TLS clients, and refuses names that
// no service covers. The names resolve to the machine itself, so the sidecar listens on another
// of its addresses.
func TestEnvoyDynamicDNSOverTLS(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s := startServer(t, serverOptions{})
		a, b := startTLSUpstream(t, "a"), startTLSUpstream(t, "b")
		at := func(port int) string { return fmt.Sprintf("127.0.0.2:%d", port) }
		s.apply(fill(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: outside, namespace: shop}
spec:
  hosts: ["*.localhost"]
  location: MESH_EXTERNAL
  resolution: DYNAMIC_DNS
  ports: [{number: $a, name: tls, protocol: TLS}, {number: $b, name: https, protocol: HTTPS}]
`, "$a", a, "$b", b), sidecarOf(`{egress: [{bind: 127.0.0.2, hosts: ["shop/*"]}]}`))
		client := s.startEnvoy(envoyOptions{kind: "sidecar", name: "client", variant: v})
		awaitTLSAt(t, at(a), "x.localhost", "a")
		awaitTLSAt(t, at(a), "deep.y.localhost", "a")
		awaitTLSAt(t, at(b), "x.localhost", "b")
		for _, name := range []string{"localhost", "elsewhere.test", ""} {
			if got, err := callTLSAt(t.Context(), at(a), name); err == nil {
				t.Errorf("the name %q of no service: %s answers", name, got)
			}
		}

		s.awaitSynced(s.apply(fill(`
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: outside, namespace: shop}
spec:
  hosts: ["*.localhost"]
  tls:
  - {match: [{sniHosts: [z.localhost], port: $a}], route: [{destination: {host: "*.localhost", port: {number: $b}}}]}
  - {match: [{sniHosts: ["*.localhost"], port: $a}], route: [{destination: {host: "*.localhost", port: {number: $a}}}]}
`, "$a", a, "$b", b)), "client")
		awaitTLSAt(t, at(a), "z.localhost", "b")
		awaitTLSAt(t, at(a), "x.localhost", "a")
		s.expectNothingRejected()
		client.expectNothingRejected()
	})
}

// TestEnvoyAllowAnyDynamicDNS: a sidecar without traffic capture looks up unknown hosts, on the
// port of a service and as an HTTP proxy. It does not for hosts that it knows, or if its
// Sidecar forbids it.
func TestEnvoyAllowAnyDynamicDNS(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		port, proxy := freePort(t), freePort(t)
		s := startServer(t, serverOptions{meshConfig: "outboundTrafficPolicy: {mode: ALLOW_ANY_DYNAMIC_DNS}"})
		known, other := startUpstream(t, "known"), startUpstream(t, "other")
		s.apply(httpEntry("known", port, known.endpoint()))
		client := s.startEnvoy(envoyOptions{kind: "sidecar", name: "client", variant: v, httpProxyPort: proxy})
		elsewhere := fmt.Sprintf("x.localhost:%d", other.port)
		awaitReply(t, request{port: port, host: elsewhere}, "other")
		awaitReply(t, request{port: port, host: "known.shop.test"}, "known")
		web := clientOfProxy(t, proxy)
		awaitAnswer(t, web, "http://"+elsewhere+"/", "other")
		awaitAnswer(t, web, fmt.Sprintf("http://known.shop.test:%d/", port), "known")

		s.awaitSynced(s.apply(sidecarOf(`{egress: [{hosts: ["shop/*"]}], outboundTrafficPolicy: {mode: REGISTRY_ONLY}}`)), "client")
		awaitAnswer(t, web, "http://"+elsewhere+"/", "502")
		client.awaitCluster("AllowAnyDynamicDNSCluster", false)
		s.awaitSynced(s.remove(sidecarOf(`{egress: [{hosts: ["shop/*"]}], outboundTrafficPolicy: {mode: REGISTRY_ONLY}}`)), "client")
		awaitAnswer(t, web, "http://"+elsewhere+"/", "other")
		s.expectNothingRejected()
		client.expectNothingRejected()
	})
}

// TestEnvoyAllowAnyDynamicDNSWithTLS: a sidecar encrypts requests to unknown hosts, and sends
// nothing if the certificate is for another host.
func TestEnvoyAllowAnyDynamicDNSWithTLS(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		of, port := newAuthority(t, "authority"), freePort(t)
		roots := write(t, "roots.pem", string(of.pair.Cert))
		s := startServer(t, serverOptions{meshConfig: "outboundTrafficPolicy: {mode: ALLOW_ANY_DYNAMIC_DNS, tls: {mode: SIMPLE, caCertificates: " + roots + "}}"})
		right := tlsUpstream(t, "right", serverOf(t, of.issue(time.Hour, "x.localhost")))
		wrong := tlsUpstream(t, "wrong", serverOf(t, of.issue(time.Hour, "other.localhost")))
		plain := startUpstream(t, "plain")
		s.apply(httpEntry("known", port, startUpstream(t, "known").endpoint()))
		client := s.startEnvoy(envoyOptions{kind: "sidecar", name: "client", variant: v})
		awaitReply(t, request{port: port, host: fmt.Sprintf("x.localhost:%d", right)}, "right")
		awaitReply(t, request{port: port, host: "known.shop.test"}, "known")
		if got := send(t, request{port: port, host: fmt.Sprintf("x.localhost:%d", wrong)}); got.status != 503 {
			t.Errorf("the certificate of another host: %+v", got)
		}
		if stats, err := client.stats(`AllowAnyDynamicDNSCluster.*ssl\.fail_verify_san`); err != nil || len(stats) != 1 || slices.Contains(slices.Collect(maps.Values(stats)), 0) {
			t.Errorf("why it was refused: %v, %v", stats, err)
		}
		if got := send(t, request{port: port, host: fmt.Sprintf("x.localhost:%d", plain.port)}); got.status != 503 {
			t.Errorf("a server without TLS: %+v", got)
		}
		s.expectNothingRejected()
		client.expectNothingRejected()
	})
}

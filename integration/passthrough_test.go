package integration

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/storage/secret/secrettest"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/explain"
)

// edgeOfTLS is a Gateway with TLS servers, given in YAML.
func edgeOfTLS(name string, servers ...string) string {
	return fill(`
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: $name, namespace: shop}
spec:
  selector: {app: edge}
  servers: [$servers]
`, "$name", name, "$servers", strings.Join(servers, ", "))
}

// tlsServer is a server of a Gateway on the loopback address.
func tlsServer(name string, port int, tls, hosts string) string {
	return fmt.Sprintf("{port: {number: %d, name: %s, protocol: TLS}, bind: 127.0.0.1, tls: {%s}, hosts: [%s]}", port, name, tls, hosts)
}

// tlsRoutes is a VirtualService of the Gateway for every host, with tls routes.
func tlsRoutes(name string, routes ...string) string {
	return fill(`
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: $name, namespace: shop}
spec:
  hosts: ["*.shop.test"]
  gateways: [edge]
  tls: [$routes]
`, "$name", name, "$routes", strings.Join(routes, ", "))
}

// sniRoute is a tls route for some names, to two services by weights.
func sniRoute(names string, first, second int) string {
	return fmt.Sprintf("{match: [{sniHosts: [%s]}], route: [{destination: {host: one.shop.test}, weight: %d}, {destination: {host: two.shop.test}, weight: %d}]}", names, first, second)
}

// expectClosedTLS connects to a port with an SNI, and expects that the connection is closed
// before the handshake ends.
func expectClosedTLS(t testing.TB, port int, name string) {
	t.Helper()
	if got, err := callTLS(t.Context(), port, name); err == nil {
		t.Errorf("nothing is there for %q, and %s answers", name, got)
	}
}

// TestEnvoyGatewayPassesTLS: a gateway forwards TLS connections by SNI. The routes of a name
// change back and forth while clients connect, and every connection is served.
func TestEnvoyGatewayPassesTLS(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, port := startServer(t, serverOptions{}), freePort(t)
		one, two := startTLSUpstream(t, "one"), startTLSUpstream(t, "two")
		s.apply(streamEntry("one", "TLS", freePort(t), one), streamEntry("two", "TLS", freePort(t), two),
			edgeOfTLS("edge", tlsServer("a", port, "mode: PASSTHROUGH", "'*.shop.test'")),
			tlsRoutes("v", sniRoute("a.shop.test", 100, 0), sniRoute("'*.x.shop.test'", 0, 100)))
		edge := s.startEnvoy(envoyOptions{kind: "router", name: "edge", labels: "app=edge", variant: v})
		awaitTLS(t, port, "a.shop.test", "one")
		awaitTLS(t, port, "deep.x.shop.test", "two")
		expectClosedTLS(t, port, "b.shop.test")
		expectClosedTLS(t, port, "a.elsewhere.test")
		expectClosedTLS(t, port, "")
		if name, err := greeting(t.Context(), port); err == nil {
			t.Errorf("a client without TLS is answered by %q", name)
		}

		calls := startCallsOf(t, func(ctx context.Context) error {
			_, err := callTLS(ctx, port, "a.shop.test")
			return err
		})
		s.awaitSynced(s.apply(tlsRoutes("v", sniRoute("a.shop.test", 0, 100))), "edge")
		awaitTLS(t, port, "a.shop.test", "two")
		expectClosedTLS(t, port, "deep.x.shop.test")
		s.awaitSynced(s.apply(tlsRoutes("v", sniRoute("a.shop.test", 30, 70))), "edge")
		expectTLSShares(t, port, "a.shop.test")
		third := streamEntry("third", "TLS", freePort(t), startTLSUpstream(t, "third"))
		toThird := tlsRoutes("v", "{match: [{sniHosts: [a.shop.test]}], route: [{destination: {host: third.shop.test}}]}")
		for range 3 {
			s.awaitSynced(s.apply(third, toThird), "edge")
			awaitTLS(t, port, "a.shop.test", "third")
			s.apply(tlsRoutes("v", sniRoute("a.shop.test", 100, 0)))
			s.awaitSynced(s.remove(third), "edge")
			awaitTLS(t, port, "a.shop.test", "one")
		}
		calls.expectAll()

		e, err := s.explain("gateway/shop/edge", fmt.Sprintf("a.shop.test:%d", port), request{})
		if err != nil || e.Outcome != explain.Forwarded || e.Route == nil || e.Route.Object != "virtualservice/shop/v" || e.Route.Field != "spec.tls[0].match[0]" {
			t.Errorf("the explanation is %v, %+v", err, e)
		}
		s.awaitSynced(s.remove(tlsRoutes("v", sniRoute("a.shop.test", 100, 0))), "edge")
		awaitClosed(t, port)
		s.expectNothingRejected()
		edge.expectNothingRejected()
	})
}

// expectTLSShares connects with an SNI whose connections two upstreams share 30 to 70.
func expectTLSShares(t testing.TB, port int, name string) {
	t.Helper()
	const n = 200
	got := map[string]int{}
	for range n {
		who, err := callTLS(t.Context(), port, name)
		if err != nil {
			t.Fatal(err)
		}
		got[who]++
	}
	// The bounds are five standard deviations from a share of 0.7.
	if got["one"]+got["two"] != n || got["two"] < 108 || got["two"] > 172 {
		t.Errorf("of %d connections shared 30 to 70: %v", n, got)
	}
}

// callTLSWith connects to a port with a configuration, and returns the name in the greeting.
func callTLSWith(ctx context.Context, port int, config *tls.Config) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	c, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", local(port))
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	deadline, _ := ctx.Deadline()
	_ = c.SetDeadline(deadline)
	got, err := bufio.NewReader(c).ReadString('\n')
	return strings.TrimSpace(got), err
}

// withKey returns a pair as a certificate of package tls.
func withKey(t testing.TB, of secrettest.Pair) tls.Certificate {
	t.Helper()
	out, err := tls.X509KeyPair(of.Cert, of.Key)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestEnvoyGatewayEndsTLSForBytes: a gateway terminates TLS and forwards the bytes. A server
// opens when its certificate comes; one that passes TLS on serves all the time.
func TestEnvoyGatewayEndsTLSForBytes(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, port := startServer(t, serverOptions{}), freePort(t)
		plain, passed := startTCPUpstream(t, "plain"), startTLSUpstream(t, "one")
		ends := secrettest.New(t, time.Hour, "ends.shop.test", "mutual.shop.test")
		client, stranger := secrettest.New(t, time.Hour, "client"), secrettest.New(t, time.Hour, "client")
		roots := x509.NewCertPool()
		roots.AddCert(ends.Parsed)
		call := func(name string, certificates ...tls.Certificate) (string, error) {
			return callTLSWith(t.Context(), port, &tls.Config{RootCAs: roots, ServerName: name, Certificates: certificates})
		}
		await := func(name, want string, certificates ...tls.Certificate) {
			t.Helper()
			eventually(t, name+" leads to "+want, func() error {
				got, err := call(name, certificates...)
				if err == nil && got != want {
					err = fmt.Errorf("it leads to %s", got)
				}
				return err
			})
		}
		s.apply(streamEntry("plain", "TCP", freePort(t), plain), streamEntry("one", "TLS", freePort(t), passed), streamEntry("two", "TLS", freePort(t), passed),
			edgeOfTLS("edge", tlsServer("a", port, "mode: PASSTHROUGH", "pass.shop.test"),
				tlsServer("b", port, "mode: SIMPLE, credentialName: ends", "ends.shop.test"),
				tlsServer("c", port, "mode: MUTUAL, credentialName: ends", "mutual.shop.test")),
			tlsRoutes("v", sniRoute("pass.shop.test", 1, 0)),
			fill(`
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: bytes, namespace: shop}
spec:
  hosts: [ends.shop.test, mutual.shop.test]
  gateways: [edge]
  tcp: [{route: [{destination: {host: plain.shop.test}}]}]
`))
		edge := s.startEnvoy(envoyOptions{kind: "router", name: "edge", namespace: "shop", labels: "app=edge", variant: v})
		awaitTLS(t, port, "pass.shop.test", "one")
		expectClosedTLS(t, port, "ends.shop.test")
		calls := startCallsOf(t, func(ctx context.Context) error {
			_, err := callTLS(ctx, port, "pass.shop.test")
			return err
		})

		s.awaitSynced(s.apply(tlsSecret("ends", ends)), "edge")
		await("ends.shop.test", "plain")
		expectClosedTLS(t, port, "mutual.shop.test") // the authorities for clients are missing
		s.awaitSynced(s.apply(caSecret("ends-cacert", client)), "edge")
		await("mutual.shop.test", "plain", withKey(t, client))
		for want, certificates := range map[string][]tls.Certificate{"certificate required": nil, "unknown certificate authority": {withKey(t, stranger)}} {
			if got, err := call("mutual.shop.test", certificates...); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q, %v, want %s", got, err, want)
			}
		}
		if name, err := greeting(t.Context(), port); err == nil {
			t.Errorf("a client without TLS is answered by %q", name)
		}
		calls.expectAll()
		s.expectNothingRejected()
		edge.expectNothingRejected()
	})
}

// caSecret is a secret with the certificate of an authority.
func caSecret(name string, of secrettest.Pair) string {
	lines := strings.ReplaceAll(strings.TrimSpace(string(of.Cert)), "\n", "\n    ")
	return fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: %s, namespace: shop}\ntype: Opaque\nstringData:\n  ca.crt: |\n    %s\n", name, lines)
}

// TestEnvoyGatewayPassesToServices: a gateway forwards TLS to the cluster that the SNI names
// (AUTO_PASSTHROUGH). Clients offer an ALPN protocol of the mesh.
func TestEnvoyGatewayPassesToServices(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, port := startServer(t, serverOptions{}), freePort(t)
		one, two, number := startMeshUpstream(t, "one"), startMeshUpstream(t, "two"), freePort(t)
		entry := func(name string, target int) string {
			return strings.Replace(streamEntry(name, "TLS", number, target), "resolution:", "location: MESH_INTERNAL\n  resolution:", 1)
		}
		call := func(ctx context.Context, cluster string, offered ...string) (string, error) {
			return callTLSWith(ctx, port, &tls.Config{ServerName: cluster, NextProtos: offered, InsecureSkipVerify: true}) //nolint:gosec // who answers is told by the greeting
		}
		await := func(cluster, want string) {
			t.Helper()
			eventually(t, cluster+" leads to "+want, func() error {
				got, err := call(t.Context(), cluster, "istio")
				if err == nil && got != want {
					err = fmt.Errorf("it leads to %s", got)
				}
				return err
			})
		}
		cluster := func(host string) string { return fmt.Sprintf("outbound_.%d_._.%s", number, host) }
		s.apply(entry("one", one), edgeOfTLS("edge", tlsServer("a", port, "mode: AUTO_PASSTHROUGH", "'*.shop.test'")))
		edge := s.startEnvoy(envoyOptions{kind: "router", name: "edge", labels: "app=edge", variant: v})
		await(cluster("one.shop.test"), "one")
		for name, offered := range map[string][]string{cluster("one.shop.test"): {"h2"}, cluster("two.shop.test"): {"istio"}, "one.shop.test": {"istio"}} {
			if got, err := call(t.Context(), name, offered...); err == nil {
				t.Errorf("%s with %v leads to %s", name, offered, got)
			}
		}
		calls := startCallsOf(t, func(ctx context.Context) error {
			_, err := call(ctx, cluster("one.shop.test"), "istio")
			return err
		})
		for range 3 {
			s.awaitSynced(s.apply(entry("two", two)), "edge")
			await(cluster("two.shop.test"), "two")
			s.awaitSynced(s.remove(entry("two", two)), "edge")
			edge.awaitCluster(cluster("two.shop.test"), false)
		}
		calls.expectAll()
		s.expectNothingRejected()
		edge.expectNothingRejected()
	})
}

// startMeshUpstream is startTLSUpstream for a server with an ALPN protocol of the mesh.
func startMeshUpstream(t testing.TB, name string) int {
	t.Helper()
	config := &tls.Config{Certificates: []tls.Certificate{withKey(t, secrettest.New(t, time.Hour, name))}, NextProtos: []string{"istio"}}
	return serveTCP(t, listen(t), func(c net.Conn) { fmt.Fprintln(tls.Server(c, config), name) })
}

package integration

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// httpEntry is a service with one HTTP port and one endpoint, an address or a socket.
func httpEntry(name string, port int, endpoint string) string {
	return fill(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: $name, namespace: shop}
spec:
  hosts: [$name.shop.test]
  resolution: STATIC
  ports: [{number: $port, name: http, protocol: HTTP}]
  endpoints: [$endpoint]
`, "$name", name, "$port", port, "$endpoint", endpoint)
}

func (u *upstream) endpoint() string {
	return fmt.Sprintf("{address: 127.0.0.1, ports: {http: %d}, labels: {version: %s}}", u.port, u.name)
}

// sidecarOf returns the Sidecar of the namespace shop.
func sidecarOf(spec string) string {
	return "apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {name: default, namespace: shop}\nspec: " + spec + "\n"
}

// awaitAnswer waits until a client gets an answer to a request for a URL.
func awaitAnswer(t testing.TB, client *http.Client, to, want string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s answers %s", to, want), func() error {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, to, nil)
		if err != nil {
			return err
		}
		got, err := answer(client, r)
		if err == nil && got.String() != want {
			err = fmt.Errorf("it answers %s: %s", got, got.body)
		}
		return err
	})
}

// socketDir returns a directory with a short path, for sockets.
func socketDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "mesh")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func listenUnix(t testing.TB, path string) net.Listener {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// clientVia returns an HTTP client that connects to a socket for every request.
func clientVia(t testing.TB, socket string) *http.Client {
	t.Helper()
	client := clientOf(t)
	client.Transport.(*http.Transport).DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	return client
}

// clientOfProxy returns an HTTP client that uses a port as its HTTP proxy.
func clientOfProxy(t testing.TB, port int) *http.Client {
	t.Helper()
	client := clientOf(t)
	client.Transport.(*http.Transport).Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: local(port)})
	return client
}

// TestEnvoySockets: applications call a sidecar through Unix domain sockets, for HTTP of all
// ports and for TCP. The sidecar calls an application and an endpoint through sockets.
func TestEnvoySockets(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, dir := startServer(t, serverOptions{}), socketDir(t)
		at := func(name string) string { return filepath.Join(dir, name) }
		one, two := startUpstream(t, "one"), startUpstream(t, "two")
		serveUpstream(t, "app", listenUnix(t, at("app")))
		serveUpstream(t, "backend", listenUnix(t, at("backend")))
		ledger := startTCPUpstream(t, "ledger")
		in := freePort(t)
		tcp := fill(ledgerEntry, "$port", 7000, "$target", ledger)
		sidecar := sidecarOf(fill(`
  ingress:
  - {port: {number: $in, protocol: HTTP, name: http}, bind: 127.0.0.1, defaultEndpoint: "unix://$dir/app"}
  egress:
  - {port: {number: 0, protocol: HTTP, name: http}, bind: "unix://$dir/http", hosts: ["shop/*"]}
  - {port: {number: 0, protocol: TCP, name: tcp}, bind: "unix://$dir/tcp", hosts: ["shop/ledger.shop.test"]}
`, "$in", in, "$dir", dir))
		s.apply(httpEntry("one", 80, one.endpoint()), httpEntry("two", 8080, two.endpoint()), tcp, sidecar,
			httpEntry("backend", 8081, fmt.Sprintf("{address: 'unix://%s'}", at("backend"))))
		client := s.startEnvoy(envoyOptions{kind: "sidecar", name: "client", variant: v})
		web := clientVia(t, at("http"))
		awaitAnswer(t, web, "http://one.shop.test/", "one")
		awaitAnswer(t, web, "http://one.shop.test:80/", "one")
		awaitAnswer(t, web, "http://two.shop.test:8080/", "two")
		awaitAnswer(t, web, "http://backend.shop.test:8081/", "backend")
		awaitReply(t, request{port: in, host: "anything.test"}, "app")
		greets := func() error {
			got, err := greetingAt(t.Context(), "unix", at("tcp"))
			if err == nil && got != "ledger" {
				err = errors.New("greeted by " + got)
			}
			return err
		}
		eventually(t, "the socket leads to ledger", greets)

		// Routes apply, and services come and go.
		three := startUpstream(t, "three")
		s.awaitSynced(s.apply(httpEntry("three", 80, three.endpoint()), fill(`
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: two, namespace: shop}
spec: {hosts: [two.shop.test], http: [{route: [{destination: {host: one.shop.test}}]}]}
`)), "client")
		awaitAnswer(t, web, "http://three.shop.test/", "three")
		awaitAnswer(t, web, "http://two.shop.test:8080/", "one")
		s.awaitSynced(s.remove(tcp), "client")
		eventually(t, "the socket of no service is closed", func() error {
			if greets() == nil {
				return errors.New("it takes connections")
			}
			return nil
		})
		s.awaitSynced(s.apply(tcp), "client")
		eventually(t, "the socket leads to ledger again", greets)
		s.expectNothingRejected()
		client.expectNothingRejected()
	})
}

// TestEnvoyHTTPProxy: clients name the host and port that they want to the HTTP proxy of the
// mesh, and to an egress listener of protocol HTTP_PROXY.
func TestEnvoyHTTPProxy(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		port, own := freePort(t), freePort(t)
		s := startServer(t, serverOptions{meshConfig: fmt.Sprintf("proxyHttpPort: %d\noutboundTrafficPolicy: {mode: REGISTRY_ONLY}", port)})
		one, two := startUpstream(t, "one"), startUpstream(t, "two")
		first, second := freePort(t), freePort(t)
		s.apply(httpEntry("one", first, one.endpoint()), httpEntry("two", second, two.endpoint()))
		client := s.startEnvoy(envoyOptions{kind: "sidecar", name: "client", variant: v})
		web := clientOfProxy(t, port)
		urlOf := func(name string, port int) string { return fmt.Sprintf("http://%s.shop.test:%d/", name, port) }
		awaitAnswer(t, web, urlOf("one", first), "one")
		awaitAnswer(t, web, urlOf("two", second), "two")
		awaitAnswer(t, web, urlOf("one", second), "502")
		awaitAnswer(t, web, "http://one.shop.test/", "502")

		s.awaitSynced(s.apply(fill(`
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: one, namespace: shop}
spec: {hosts: [one.shop.test], http: [{route: [{destination: {host: two.shop.test}}]}]}
`), sidecarOf(fill(`{egress: [{port: {number: $port, protocol: HTTP_PROXY, name: proxy}, hosts: ["shop/one.shop.test"]}, {hosts: ["shop/two.shop.test"]}]}`,
			"$port", own))), "client")
		narrow := clientOfProxy(t, own)
		awaitAnswer(t, narrow, urlOf("one", first), "two")
		awaitAnswer(t, narrow, urlOf("two", second), "502")
		awaitAnswer(t, web, urlOf("two", second), "two")
		awaitAnswer(t, web, urlOf("one", first), "502")
		s.expectNothingRejected()
		client.expectNothingRejected()
	})
}

// TestEnvoyEgress: a Sidecar binds an address for the ports of all services, opens a port as
// soon as a service has it, imports hosts, and sends the rest to an egress proxy.
func TestEnvoyEgress(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s := startServer(t, serverOptions{})
		front, back, forward, late := startUpstream(t, "front"), startUpstream(t, "back"), startUpstream(t, "forward"), startUpstream(t, "late")
		port, backPort, latePort := freePort(t), freePort(t), freePort(t)
		s.apply(httpEntry("front", port, front.endpoint()), httpEntry("back", backPort, back.endpoint()), httpEntry("forward", 3128, forward.endpoint()), fill(`
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: forward, namespace: shop}
spec: {host: forward.shop.test, subsets: [{name: f, labels: {version: forward}}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: front, namespace: shop}
spec: {hosts: [front.shop.test], http: [{match: [{uri: {prefix: /back}}], route: [{destination: {host: back.shop.test}}]}, {route: [{destination: {host: front.shop.test}}]}]}
`), sidecarOf(fill(`
  egress:
  - {port: {number: $late, protocol: HTTP, name: http}, hosts: ["shop/late.shop.test"]}
  - {bind: 127.0.0.2, hosts: ["shop/front.shop.test"]}
  outboundTrafficPolicy: {mode: ALLOW_ANY, egressProxy: {host: forward.shop.test, port: {number: 3128}, subset: f}}
`, "$late", latePort)))
		client := s.startEnvoy(envoyOptions{kind: "sidecar", name: "client", variant: v})
		bound := clientOf(t)
		to := func(host, path string) func(want string) {
			return func(want string) {
				t.Helper()
				eventually(t, host+path+" answers "+want, func() error {
					r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("http://127.0.0.2:%d%s", port, path), nil)
					if err != nil {
						return err
					}
					r.Host = host
					got, err := answer(bound, r)
					if err == nil && got.String() != want {
						err = fmt.Errorf("it answers %s", got)
					}
					return err
				})
			}
		}
		to("front.shop.test", "/")("front")
		to("front.shop.test", "/back")("back")
		to("unknown.test", "/")("forward")
		to("back.shop.test", "/")("forward") // no listener carries it, but a route leads there
		client.awaitCluster(fmt.Sprintf("outbound|%d||back.shop.test", backPort), true)
		for _, closed := range []string{local(port), local(backPort), fmt.Sprintf("127.0.0.2:%d", backPort), local(latePort)} {
			if listening(closed) {
				t.Errorf("the sidecar listens on %s", closed)
			}
		}
		s.awaitSynced(s.apply(httpEntry("late", latePort, late.endpoint())), "client")
		awaitReply(t, request{port: latePort, host: "late.shop.test"}, "late")
		s.awaitSynced(s.remove(httpEntry("late", latePort, late.endpoint())), "client")
		awaitClosed(t, latePort)

		// Without capture, the destination of other requests is unknown.
		s.awaitSynced(s.apply(sidecarOf(`{egress: [{bind: 127.0.0.2, hosts: ["shop/front.shop.test"]}], outboundTrafficPolicy: {mode: ALLOW_ANY}}`)), "client")
		to("unknown.test", "/")("503")
		s.expectNothingRejected()
		client.expectNothingRejected()
	})
}

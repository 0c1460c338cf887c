package integration

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/big"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// streamEntry is a service with one port and one endpoint. The first label of its host is its
// name.
func streamEntry(name, protocol string, port, target int) string {
	return fill(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: $name, namespace: shop}
spec:
  hosts: [$name.shop.test]
  resolution: STATIC
  ports: [{number: $port, name: port, protocol: $protocol}]
  endpoints: [{address: 127.0.0.1, ports: {port: $target}}]
`, "$name", name, "$protocol", protocol, "$port", port, "$target", target)
}

// streamRoutes is a VirtualService for the host of a service.
func streamRoutes(name, routes string) string {
	return fill(`
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: $name, namespace: shop}
spec: {hosts: [$name.shop.test], $routes}
`, "$name", name, "$routes", routes)
}

// shared is a tcp route to two ledgers by weights.
func shared(first, second int) string {
	return streamRoutes("ledger", fmt.Sprintf(`tcp: [{route: [
  {destination: {host: ledger.shop.test}, weight: %d}, {destination: {host: other.shop.test}, weight: %d}]}]`, first, second))
}

// TestEnvoyTCPRoutes moves the connections to a service to another one by weights, back and
// forth while clients connect. Every connection is served. Then only connections to some
// addresses go there.
func TestEnvoyTCPRoutes(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, port := startServer(t, serverOptions{}), freePort(t)
		one, two := startTCPUpstream(t, "one"), startTCPUpstream(t, "two")
		ledger, other := streamEntry("ledger", "TCP", port, one), streamEntry("other", "TCP", freePort(t), two)
		s.apply(ledger, other)
		client := s.startEnvoy(envoyOptions{kind: "sidecar", name: "client", variant: v})
		awaitGreeting(t, port, "one")

		calls := startCalls(t, port)
		s.awaitSynced(s.apply(shared(0, 100)), "client")
		awaitGreeting(t, port, "two")
		s.awaitSynced(s.apply(shared(30, 70)), "client")
		expectShares(t, port)
		for range 5 {
			s.apply(shared(100, 0))
			s.awaitSynced(s.apply(shared(0, 100)), "client")
		}
		s.awaitSynced(s.apply(shared(100, 0)), "client")
		awaitGreeting(t, port, "one")
		calls.expectAll()

		s.awaitSynced(s.apply(streamRoutes("ledger", "tcp: [{match: [{destinationSubnets: [127.0.0.0/8]}], route: [{destination: {host: other.shop.test}}]}]")), "client")
		awaitGreeting(t, port, "two")
		s.awaitSynced(s.apply(streamRoutes("ledger", "tcp: [{match: [{destinationSubnets: [10.0.0.0/8]}], route: [{destination: {host: other.shop.test}}]}]")), "client")
		awaitGreeting(t, port, "one")
		s.expectNothingRejected()
		client.expectNothingRejected()
	})
}

// TestEnvoyTCPRouteToANewService adds a service and the route to it in one batch, and removes
// both in one, again and again while clients connect.
func TestEnvoyTCPRouteToANewService(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, port, elsewhere := startServer(t, serverOptions{}), freePort(t), freePort(t)
		one, two := startTCPUpstream(t, "one"), startTCPUpstream(t, "two")
		other := streamEntry("other", "TCP", elsewhere, two)
		s.apply(streamEntry("ledger", "TCP", port, one))
		client := s.startEnvoy(envoyOptions{kind: "sidecar", name: "client", variant: v})
		awaitGreeting(t, port, "one")
		calls := startCalls(t, port)
		for range 4 {
			s.awaitSynced(s.apply(other, shared(0, 100)), "client")
			awaitGreeting(t, port, "two")
			s.awaitSynced(s.remove(other, shared(0, 100)), "client")
			awaitGreeting(t, port, "one")
		}
		calls.expectAll()
		client.awaitCluster(fmt.Sprintf("outbound|%d||other.shop.test", elsewhere), false)
		s.expectNothingRejected()
		client.expectNothingRejected()
	})
}

// TestEnvoyTLSRoutes: the SNI tells services on one port apart, and the routes of a
// VirtualService apply to some names.
func TestEnvoyTLSRoutes(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, port := startServer(t, serverOptions{}), freePort(t)
		a, b := startTLSUpstream(t, "a"), startTLSUpstream(t, "b")
		s.apply(streamEntry("a", "TLS", port, a), streamEntry("b", "HTTPS", port, b))
		client := s.startEnvoy(envoyOptions{kind: "sidecar", name: "client", variant: v})
		awaitTLS(t, port, "a.shop.test", "a")
		awaitTLS(t, port, "b.shop.test", "b")
		awaitTLS(t, port, "x.shop.test", "a") // the oldest service has names that no other has

		s.awaitSynced(s.apply(fill(`
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: names, namespace: shop}
spec:
  hosts: ["*.shop.test"]
  tls:
  - {match: [{sniHosts: [b.shop.test], destinationSubnets: [10.0.0.0/8]}], route: [{destination: {host: b.shop.test}}]}
  - {match: [{sniHosts: [b.shop.test, "*.x.shop.test"]}, {sniHosts: [z.shop.test], port: $port}], route: [{destination: {host: a.shop.test}}]}
  - {match: [{sniHosts: ["*.shop.test"]}], route: [{destination: {host: b.shop.test}}]}
`, "$port", port)), "client")
		for name, want := range map[string]string{
			"b.shop.test": "a", "deep.x.shop.test": "a", "z.shop.test": "a", "a.shop.test": "b", "else.shop.test": "b",
		} {
			awaitTLS(t, port, name, want)
		}
		if got, err := callTLS(t.Context(), port, "elsewhere.test"); err == nil {
			t.Errorf("a name that no route is for: %s answers", got)
		}
		s.expectNothingRejected()
		client.expectNothingRejected()
	})
}

// calls is a client that connects to a port again and again.
type calls struct {
	t    testing.TB
	stop func()

	mu     sync.Mutex
	served int
	failed []error
}

func startCalls(t testing.TB, port int) *calls {
	t.Helper()
	return startCallsOf(t, func(ctx context.Context) error {
		_, err := greeting(ctx, port)
		return err
	})
}

// startCallsOf is startCalls with any kind of call.
func startCallsOf(t testing.TB, call func(context.Context) error) *calls {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	c := &calls{t: t}
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			err := call(context.WithoutCancel(ctx))
			c.mu.Lock()
			if err == nil {
				c.served++
			} else {
				c.failed = append(c.failed, err)
			}
			c.mu.Unlock()
		}
	})
	c.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	t.Cleanup(c.stop)
	return c
}

// expectAll stops the client. Every call must have been served.
func (c *calls) expectAll() {
	c.t.Helper()
	c.stop()
	if c.served == 0 || len(c.failed) > 0 {
		c.t.Errorf("%d connections were served, and %d failed: %v", c.served, len(c.failed), c.failed)
	}
}

// startTLSUpstream runs a TLS server that greets clients with its name. It returns its port.
func startTLSUpstream(t testing.TB, name string) int {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	return serveTCP(t, listen(t), func(c net.Conn) { fmt.Fprintln(tls.Server(c, config), name) })
}

// callTLS connects to a port with an SNI, and returns the name in the greeting.
func callTLS(ctx context.Context, port int, name string) (string, error) {
	return callTLSAt(ctx, local(port), name)
}

// callTLSAt is callTLS at an address and port. An empty name sends no SNI.
func callTLSAt(ctx context.Context, address, name string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	dialer := tls.Dialer{Config: &tls.Config{ServerName: name, InsecureSkipVerify: true}} //nolint:gosec // who answers is told by the greeting
	c, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	got, err := bufio.NewReader(c).ReadString('\n')
	return strings.TrimSpace(got), err
}

func awaitTLS(t testing.TB, port int, name, want string) {
	t.Helper()
	awaitTLSAt(t, local(port), name, want)
}

func awaitTLSAt(t testing.TB, address, name, want string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s leads to %s", name, want), func() error {
		got, err := callTLSAt(t.Context(), address, name)
		if err == nil && got != want {
			err = fmt.Errorf("it leads to %s", got)
		}
		return err
	})
}

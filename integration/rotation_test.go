package integration

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/storage/longtest"
	"github.com/portolan-mesh/portolan/storage/secret/secrettest"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// secureGateway is a Gateway with an HTTPS server on one port for each name. The name is the
// first label of the host and the name of the secret.
func secureGateway(port int, names ...string) string {
	servers := ""
	for _, name := range names {
		servers += fmt.Sprintf("\n  - {port: {number: %d, name: %s, protocol: HTTPS}, bind: 127.0.0.1, hosts: [%[2]s.shop.test], tls: {mode: SIMPLE, credentialName: %[2]s}}", port, name)
	}
	return fill(`
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: secure, namespace: shop}
spec:
  selector: {app: edge}
  servers: $servers
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: secure, namespace: shop}
spec:
  hosts: ["*.shop.test"]
  gateways: [secure]
  http: [{route: [{destination: {host: $host}}]}]
`, "$servers", servers, "$host", shopHost)
}

// tlsClient makes connections to a port of 127.0.0.1 for a host, and verifies the certificate.
type tlsClient struct {
	port  int
	host  string
	roots *x509.CertPool
}

// newTLSClient returns a client that trusts some certificates.
func newTLSClient(port int, host string, trusted ...secrettest.Pair) tlsClient {
	roots := x509.NewCertPool()
	for _, pair := range trusted {
		roots.AddCert(pair.Parsed)
	}
	return tlsClient{port, host, roots}
}

func (c tlsClient) dial(ctx context.Context) (*tls.Conn, error) {
	d := tls.Dialer{
		NetDialer: &net.Dialer{Timeout: 5 * time.Second},
		Config:    &tls.Config{ServerName: c.host, RootCAs: c.roots, NextProtos: []string{"http/1.1"}, MinVersion: tls.VersionTLS12},
	}
	conn, err := d.DialContext(ctx, "tcp", local(c.port))
	if err != nil {
		return nil, err
	}
	return conn.(*tls.Conn), nil
}

// presented returns the serial number of the certificate that a new connection gets.
func (c tlsClient) presented(ctx context.Context) (string, error) {
	conn, err := c.dial(ctx)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	return serial(conn.ConnectionState().PeerCertificates[0]), nil
}

func serial(c *x509.Certificate) string { return c.SerialNumber.Text(16) }

// awaitCertificate waits until new connections get a certificate, and returns how long that
// took.
func (c tlsClient) awaitCertificate(t testing.TB, want secrettest.Pair) time.Duration {
	t.Helper()
	begun := time.Now()
	eventually(t, "new connections for "+c.host+" get the certificate", func() error {
		got, err := c.presented(t.Context())
		if err == nil && got != serial(want.Parsed) {
			err = fmt.Errorf("they get %s, want %s", got, serial(want.Parsed))
		}
		return err
	})
	return time.Since(begun)
}

// awaitRefused waits until connections for the host fail.
func (c tlsClient) awaitRefused(t testing.TB) {
	t.Helper()
	eventually(t, c.host+" is not served", func() error {
		if got, err := c.presented(t.Context()); err == nil {
			return errors.New("it presents " + got)
		}
		return nil
	})
}

// tlsLoad sends requests on kept connections, or on a new one for each.
type tlsLoad struct {
	t                testing.TB
	name             string
	stop             func()
	dialed, answered atomic.Int64

	mu       sync.Mutex
	failures []string
}

// loadWorkers is the number of workers of a load. With kept connections each has one.
const loadWorkers = 2

// load sends some 250 requests a second.
func (c tlsClient) load(t testing.TB, name string, kept bool) *tlsLoad {
	t.Helper()
	l := &tlsLoad{t: t, name: name}
	var workers []func(context.Context)
	for range loadWorkers {
		transport := &http.Transport{DisableKeepAlives: !kept, DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			l.dialed.Add(1)
			return c.dial(ctx)
		}}
		t.Cleanup(transport.CloseIdleConnections)
		client := &http.Client{Transport: transport, Timeout: 15 * time.Second}
		workers = append(workers, func(ctx context.Context) { l.send(ctx, client, c.host) })
	}
	l.stop = atPace(t, workers...)
	return l
}

func (l *tlsLoad) send(ctx context.Context, client *http.Client, host string) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+host+"/", nil)
	var got reply
	if err == nil {
		got, err = answer(client, r)
	}
	if err == nil && got.status != http.StatusOK {
		err = fmt.Errorf("%d %s", got.status, got.body)
	}
	switch {
	case ctx.Err() != nil:
	case err == nil:
		l.answered.Add(1)
	default:
		l.mu.Lock()
		defer l.mu.Unlock()
		l.failures = append(l.failures, fmt.Sprintf("%s %v", time.Now().Format(time.TimeOnly), err))
	}
}

// await waits for n more answers.
func (l *tlsLoad) await(n int64) {
	l.t.Helper()
	from := l.answered.Load()
	eventually(l.t, fmt.Sprintf("%d more answers to %s", n, l.name), func() error {
		if got := l.answered.Load() - from; got < n {
			return fmt.Errorf("%d so far", got)
		}
		return nil
	})
}

// expectUnharmed ends the load. No request may have failed.
func (l *tlsLoad) expectUnharmed() {
	l.t.Helper()
	l.stop()
	if len(l.failures) > 0 {
		l.t.Errorf("%s: %d requests failed, the first: %s", l.name, len(l.failures), strings.Join(l.failures[:min(5, len(l.failures))], "; "))
	}
	l.t.Logf("%s: %d requests on %d connections", l.name, l.answered.Load(), l.dialed.Load())
}

// TestSoakCertificatesRotate replaces a certificate repeatedly under requests on kept and on
// new connections. No request fails, new connections get the new certificate, and the server
// sends nothing but the secret.
func TestSoakCertificatesRotate(t *testing.T) {
	long := longtest.Soak(t)
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, x := startServer(t, serverOptions{}), newShop(t)
		const rounds = 4
		var certificates []secrettest.Pair
		for range rounds {
			certificates = append(certificates, secrettest.New(t, 24*time.Hour, "door.shop.test"))
		}
		window := secrettest.New(t, 24*time.Hour, "window.shop.test")
		s.apply(x.entry(x.v1), secureGateway(x.gateway, "door", "window"), tlsSecret("door", certificates[0]), tlsSecret("window", window))
		edge, _ := s.startPair(v)
		door := newTLSClient(x.gateway, "door.shop.test", certificates...)
		door.awaitCertificate(t, certificates[0])
		kept, fresh := door.load(t, "requests on kept connections", true), door.load(t, "requests on new connections", false)
		kept.await(50)
		fresh.await(50)
		begun := time.Now()
		for round := 1; round < rounds || time.Since(begun) < long; round++ {
			next, before := certificates[round%rounds], s.sentResources()
			s.awaitSynced(s.apply(tlsSecret("door", next)), "edge", "client")
			took := door.awaitCertificate(t, next)
			if sent := nonzero(less(s.sentResources(), before)); len(sent) != 1 || sent["SDS"] != 1 {
				t.Errorf("round %d: sent %v, want one secret", round, sent)
			}
			if round < rounds {
				t.Logf("round %d: new connections got the certificate %s after the proxy had it", round, took)
			}
			kept.await(20)
			fresh.await(20)
		}
		if n := kept.dialed.Load(); n != loadWorkers {
			t.Errorf("%d connections were opened for %d that are kept", n, loadWorkers)
		}
		newTLSClient(x.gateway, "window.shop.test", window).awaitCertificate(t, window)
		kept.expectUnharmed()
		fresh.expectUnharmed()
		s.expectNothingRejected()
		edge.expectNothingRejected()
	})
}

// TestEnvoySecretsComeAndGo: a server of a Gateway is open while its secret is stored. The
// others on its port are not affected.
func TestEnvoySecretsComeAndGo(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, x := startServer(t, serverOptions{}), newShop(t)
		one, other := secrettest.New(t, 24*time.Hour, "door.shop.test"), secrettest.New(t, 24*time.Hour, "window.shop.test")
		renewed := secrettest.New(t, 24*time.Hour, "window.shop.test")
		s.apply(x.entry(x.v1), secureGateway(x.gateway, "door", "window"), tlsSecret("door", one))
		edge := s.startEnvoy(envoyOptions{kind: "router", name: "edge", labels: "app=edge", variant: v})
		door, window := newTLSClient(x.gateway, "door.shop.test", one), newTLSClient(x.gateway, "window.shop.test", other, renewed)
		door.awaitCertificate(t, one)
		window.awaitRefused(t)
		kept := door.load(t, "requests on kept connections", true)
		kept.await(20)

		s.apply(tlsSecret("window", other))
		window.awaitCertificate(t, other)
		if bad := s.try(strings.Replace(tlsSecret("window", renewed), "tls.crt", "tls.cert", 1), "apply", "-f", "-"); bad.code == 0 {
			t.Error("a key without its certificate was stored")
		}
		window.awaitCertificate(t, other)
		s.remove(tlsSecret("window", other))
		window.awaitRefused(t)
		s.apply(tlsSecret("window", renewed))
		window.awaitCertificate(t, renewed)
		kept.await(20)
		kept.expectUnharmed()

		s.remove(tlsSecret("window", renewed), tlsSecret("door", one))
		awaitClosed(t, x.gateway)
		s.apply(tlsSecret("door", one))
		door.awaitCertificate(t, one)
		window.awaitRefused(t)
		s.expectNothingRejected()
		edge.expectNothingRejected()
	})
}

package integration

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// policyFor is the rule of the shop with a traffic policy.
func policyFor(policy string) string {
	return fill(`
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: reviews, namespace: shop}
spec: {host: $host, trafficPolicy: $policy}
`, "$host", shopHost, "$policy", policy)
}

// ledgerPolicy is the rule of the service of ledgerEntry with a traffic policy.
func ledgerPolicy(policy string) string {
	return fill(`
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: ledger, namespace: shop}
spec: {host: ledger.shop.test, trafficPolicy: $policy}
`, "$policy", policy)
}

// answers counts the responses to some requests: by the upstream's name, else by status.
func answers(t testing.TB, q request, n int) map[string]int {
	t.Helper()
	out := map[string]int{}
	for range n {
		out[send(t, q).String()]++
	}
	return out
}

// awaitAnswersOf waits until ok accepts a sample of answers.
func awaitAnswersOf(t testing.TB, what string, q request, ok func(map[string]int) bool) {
	t.Helper()
	eventually(t, what, func() error {
		if got := answers(t, q, 20); !ok(got) {
			return fmt.Errorf("answers: %v", got)
		}
		return nil
	})
}

// TestEnvoyOutlierDetection: a proxy ejects a failing endpoint and takes it back, for any
// server error, and for the status codes that a rule names. Envoy's workers learn of changed
// health once a second, so ejections last longer.
func TestEnvoyOutlierDetection(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		const eject = "outlierDetection: {%s, interval: 0.1s, baseEjectionTime: 2s, maxEjectionPercent: 100}"
		s, x := startServer(t, serverOptions{}), newShop(t)
		s.apply(x.entry(x.v1, x.v2), policyFor("{"+fmt.Sprintf(eject, "consecutive5xxErrors: 2")+"}"))
		client := s.startEnvoy(envoyOptions{kind: "sidecar", name: "client", variant: v})
		q := x.atSidecar("/")
		both := func(got map[string]int) bool { return got["v1"] > 0 && got["v2"] > 0 && got["v1"]+got["v2"] == 20 }
		only := func(name string) func(map[string]int) bool {
			return func(got map[string]int) bool { return got[name] == 20 }
		}
		awaitReply(t, request{port: x.service, host: shopHost}, "v1")
		awaitAnswersOf(t, "both answer", q, both)
		x.v1.failing.Store(http.StatusServiceUnavailable)
		awaitAnswersOf(t, "v1 is ejected", q, only("v2"))
		x.v1.failing.Store(0)
		awaitAnswersOf(t, "v1 is back", q, both)

		s.awaitSynced(s.apply(policyFor("{"+fmt.Sprintf(eject, "consecutive5xxErrors: 2, outlierDetectionHttpErrorCodes: [429, 430]")+"}")), "client")
		x.v2.failing.Store(http.StatusTooManyRequests)
		awaitAnswersOf(t, "v2 is ejected for a status that the rule names", q, only("v1"))
		x.v2.failing.Store(0)
		awaitAnswersOf(t, "v2 is back", q, both)
		s.expectNothingRejected()
		client.expectNothingRejected()
	})
}

// TestEnvoyConnectionPool: requests reach the limits of a rule, of connections and of retries.
func TestEnvoyConnectionPool(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, x := startServer(t, serverOptions{}), newShop(t)
		s.apply(x.entry(x.v1), policyFor("{connectionPool: {tcp: {maxConnections: 1}, http: {http1MaxPendingRequests: 1}}}"))
		client := s.startEnvoy(envoyOptions{kind: "sidecar", name: "client", variant: v})
		awaitReply(t, request{port: x.service, host: shopHost}, "v1")
		got := atOnce(t, 10, request{port: x.service, host: shopHost, header: map[string]string{"x-delay": "300ms"}})
		if got["v1"] == 0 || got["v1"] > 5 || got["503"] != 10-got["v1"] {
			t.Errorf("of 10 requests at once, one connection and one that waits: %v", got)
		}

		s.apply(fill(`
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: reviews, namespace: shop}
spec:
  hosts: [$host]
  http: [{retries: {attempts: 3, retryOn: 5xx}, route: [{destination: {host: $host}}]}]
`, "$host", shopHost))
		for _, c := range []struct {
			name, policy string
			least, most  int
		}{
			{"no budget", "{connectionPool: {tcp: {connectTimeout: 5s}}}", 40, 40},
			{"budget", "{retryBudget: {percent: 0, minRetryConcurrency: 1}}", 10, 25},
		} {
			s.awaitSynced(s.apply(policyFor(c.policy)), "client")
			name := v.String() + c.name
			atOnce(t, 10, request{port: x.service, host: shopHost, header: map[string]string{"x-case": name, "x-fail": "1000", "x-delay": "300ms"}})
			if tries := x.v1.attemptsOf(name); tries < c.least || tries > c.most {
				t.Errorf("%s: 10 requests that fail were tried %d times, want %d to %d", c.name, tries, c.least, c.most)
			}
		}
		s.expectNothingRejected()
		client.expectNothingRejected()
	})
}

// atOnce sends requests concurrently, and counts the responses as answers does.
func atOnce(t testing.TB, n int, q request) map[string]int {
	t.Helper()
	client := clientOf(t)
	replies := make(chan string, n)
	var running sync.WaitGroup
	for range n {
		running.Go(func() {
			got, err := do(t.Context(), client, q)
			if err != nil {
				replies <- err.Error()
				return
			}
			replies <- got.String()
		})
	}
	running.Wait()
	close(replies)
	out := map[string]int{}
	for r := range replies {
		out[r]++
	}
	return out
}

// TestEnvoyProxyProtocol: endpoints get the client's address in both versions of the PROXY
// protocol. Idle TCP connections are closed.
func TestEnvoyProxyProtocol(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, port := startServer(t, serverOptions{}), freePort(t)
		first := startFirstBytes(t, 12)
		s.apply(fill(ledgerEntry, "$port", port, "$target", first), ledgerPolicy("{proxyProtocol: {version: V1}}"))
		client := s.startEnvoy(envoyOptions{kind: "sidecar", name: "client", variant: v})
		awaitFirstBytes(t, port, "PROXY TCP4 1")
		s.awaitSynced(s.apply(ledgerPolicy("{proxyProtocol: {version: V2}}")), "client")
		awaitFirstBytes(t, port, "\r\n\r\n\x00\r\nQUIT\n")
		s.awaitSynced(s.apply(ledgerPolicy("{connectionPool: {tcp: {idleTimeout: 0.3s}}}")), "client")
		awaitFirstBytes(t, port, "what I sent ")
		eventually(t, "a quiet connection is closed", func() error {
			c, err := net.Dial("tcp", local(port))
			if err != nil {
				return err
			}
			defer func() { _ = c.Close() }()
			_ = c.SetDeadline(time.Now().Add(5 * time.Second))
			if _, err := io.ReadAll(c); err != nil {
				return err
			}
			return nil
		})
		s.expectNothingRejected()
		client.expectNothingRejected()
	})
}

// startFirstBytes runs a server that sends back the first n bytes of a connection, in
// hexadecimal, and then is silent. It returns its port.
func startFirstBytes(t testing.TB, n int) int {
	t.Helper()
	return serveTCP(t, listen(t), func(c net.Conn) {
		got := make([]byte, n)
		if _, err := io.ReadFull(c, got); err == nil {
			fmt.Fprintf(c, "%x\n", got)
		}
		_, _ = io.Copy(io.Discard, c)
	})
}

// awaitFirstBytes waits until the server behind a port gets these first bytes.
func awaitFirstBytes(t testing.TB, port int, want string) {
	t.Helper()
	eventually(t, fmt.Sprintf("the endpoint gets %q first", want), func() error {
		c, err := net.Dial("tcp", local(port))
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		_ = c.SetDeadline(time.Now().Add(time.Second))
		if _, err := io.WriteString(c, "what I sent first"); err != nil {
			return err
		}
		got, err := bufio.NewReader(c).ReadString('\n')
		if err == nil && strings.TrimSpace(got) != fmt.Sprintf("%x", want) {
			err = fmt.Errorf("it got %s", got)
		}
		return err
	})
}

// TestEnvoyKeepAlive: the proxy sends pings on an idle HTTP/2 connection.
func TestEnvoyKeepAlive(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, x := startServer(t, serverOptions{}), newShop(t)
		pings := &pingListener{Listener: listen(t)}
		u := serveUpstream(t, "probed", pings)
		s.apply(x.entry(u), policyFor("{connectionPool: {http: {h2UpgradePolicy: UPGRADE}}}"))
		client := s.startEnvoy(envoyOptions{kind: "sidecar", name: "client", variant: v})
		awaitReply(t, request{port: x.service, host: shopHost}, "probed")
		s.awaitSynced(s.apply(policyFor("{connectionPool: {http: {h2UpgradePolicy: UPGRADE, http2KeepAlive: {interval: 0.1s, timeout: 5s}}}}")), "client")
		awaitReply(t, request{port: x.service, host: shopHost}, "probed")
		eventually(t, "the connection is probed", func() error {
			if pings.seen.Load() < 2 {
				return errors.New("no pings")
			}
			return nil
		})
		s.expectNothingRejected()
		client.expectNothingRejected()
	})
}

// pingListener counts the HTTP/2 pings in its connections.
type pingListener struct {
	net.Listener
	seen atomic.Int64
}

// Accept implements net.Listener.
func (l *pingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	r, w := io.Pipe()
	go func() {
		defer func() { _, _ = io.Copy(io.Discard, r) }()
		preface := make([]byte, len(http2.ClientPreface))
		if _, err := io.ReadFull(r, preface); err != nil || string(preface) != http2.ClientPreface {
			return
		}
		frames := http2.NewFramer(io.Discard, r)
		for {
			f, err := frames.ReadFrame()
			if err != nil {
				return
			}
			if p, ok := f.(*http2.PingFrame); ok && !p.IsAck() {
				l.seen.Add(1)
			}
		}
	}()
	return &readCopy{Conn: c, to: w}, nil
}

// readCopy is a connection that also writes elsewhere what is read from it.
type readCopy struct {
	net.Conn
	to *io.PipeWriter
}

// Read implements io.Reader.
func (c *readCopy) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	_, _ = c.to.Write(b[:n])
	if err != nil {
		_ = c.to.CloseWithError(err)
	}
	return n, err
}

// Close implements io.Closer.
func (c *readCopy) Close() error {
	_ = c.to.Close()
	return c.Conn.Close()
}

// TestEnvoyWarmUp adds an endpoint to a service with warm-up: it gets less than its share at
// first, and its full share in the end.
func TestEnvoyWarmUp(t *testing.T) {
	t.Parallel()
	const window = 6 * time.Second
	s, x := startServer(t, serverOptions{}), newShop(t)
	s.apply(x.entry(x.v1), policyFor("{loadBalancer: {simple: ROUND_ROBIN, warmup: {duration: 6s, minimumPercent: 1}}}"))
	client := s.startEnvoy(envoyOptions{kind: "sidecar", name: "client", variant: protocol.Delta})
	awaitReply(t, request{port: x.service, host: shopHost}, "v1")
	began := time.Now()
	eventually(t, "v1 is warm", func() error {
		if time.Since(began) < window {
			return errors.New("not yet")
		}
		return nil
	})
	s.awaitSynced(s.apply(x.entry(x.v1, x.v2)), "client")
	added := time.Now()
	got := answers(t, x.atSidecar("/"), 100)
	if took := time.Since(added); took < window/3 && got["v2"] > 30 {
		t.Errorf("a new endpoint gets %d of its first 100 requests, within %s", got["v2"], took)
	}
	awaitAnswersOf(t, "it gets its share", x.atSidecar("/"), func(got map[string]int) bool { return got["v2"] >= 8 })
	s.expectNothingRejected()
	client.expectNothingRejected()
}

// TestEnvoyLocalities: when a zone fails, requests go to the next. A rule spreads requests over
// regions.
func TestEnvoyLocalities(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, x := startServer(t, serverOptions{}), newShop(t)
		far := startUpstream(t, "far")
		s.apply(fill(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: reviews, namespace: shop}
spec:
  hosts: [$host]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: $port, name: http, protocol: HTTP}]
  endpoints:
  - {address: 127.0.0.1, ports: {http: $one}, locality: eu/a}
  - {address: 127.0.0.1, ports: {http: $two}, locality: eu/b}
  - {address: 127.0.0.1, ports: {http: $three}, locality: us/c}
`, "$host", shopHost, "$port", x.service, "$one", x.v1.port, "$two", x.v2.port, "$three", far.port),
			policyFor("{outlierDetection: {consecutive5xxErrors: 1, interval: 0.1s, baseEjectionTime: 3s, maxEjectionPercent: 100}}"))
		client := s.startEnvoy(envoyOptions{kind: "sidecar", name: "client", variant: v, locality: "eu/a"})
		q := x.atSidecar("/")
		only := func(name string) func(map[string]int) bool {
			return func(got map[string]int) bool { return got[name] == 20 }
		}
		awaitReply(t, request{port: x.service, host: shopHost}, "v1")
		if got := answers(t, q, 50); got["v1"] != 50 {
			t.Errorf("all of the own zone: %v", got)
		}
		x.v1.failing.Store(http.StatusServiceUnavailable)
		awaitAnswersOf(t, "the other zone of the region takes over", q, only("v2"))
		x.v2.failing.Store(http.StatusServiceUnavailable)
		awaitAnswersOf(t, "the other region takes over", q, only("far"))
		x.v1.failing.Store(0)
		x.v2.failing.Store(0)
		awaitAnswersOf(t, "the own zone is back", q, only("v1"))

		s.awaitSynced(s.apply(policyFor("{loadBalancer: {simple: ROUND_ROBIN, localityLbSetting: {distribute: [{from: eu/*, to: {eu/b: 70, us: 30}}]}}}")), "client")
		got := answers(t, q, 300)
		if got["v1"] > 0 || got["v2"]+got["far"] != 300 || got["far"] < 60 || got["far"] > 120 {
			t.Errorf("of 300 requests, 70 %% to one region and 30 %% to the other: %v", got)
		}
		s.expectNothingRejected()
		client.expectNothingRejected()
	})
}

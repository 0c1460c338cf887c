package integration

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// rawUpstream answers requests of HTTP/1 without a body, and keeps them as they came.
type rawUpstream struct {
	port int

	mu   sync.Mutex
	last string
}

func startRaw(t testing.TB) *rawUpstream {
	t.Helper()
	l := listen(t)
	u := &rawUpstream{port: portAt(l)}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { u.serve(c) })
		}
	})
	t.Cleanup(func() { _ = l.Close(); all.Wait() })
	return u
}

func (u *rawUpstream) serve(c net.Conn) {
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(patience)) // Envoy keeps the connection
	head, err := readHead(bufio.NewReader(c))
	if err != nil {
		return
	}
	u.mu.Lock()
	u.last = head
	u.mu.Unlock()
	_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nX-From-Upstream: yes\r\nServer: mine\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
}

// seen returns the head of the last request.
func (u *rawUpstream) seen() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.last
}

// readHead reads up to the first empty line.
func readHead(r *bufio.Reader) (string, error) {
	var out strings.Builder
	for {
		line, err := r.ReadString('\n')
		if err != nil || line == "\r\n" {
			return out.String(), err
		}
		out.WriteString(line)
	}
}

// rawCall sends a text to a port, and returns the head of the answer.
func rawCall(port int, text string) (string, error) {
	c, err := net.Dial("tcp", local(port))
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(c, text); err != nil {
		return "", err
	}
	return readHead(bufio.NewReader(c))
}

// TestEnvoyProxyHeaders: proxyHeaders, connectionSettings and the metadata HTTP10 of the mesh decide
// what a sidecar does with requests that go out and come in, and what a gateway does. So do the
// metadata of one proxy alone.
func TestEnvoyProxyHeaders(t *testing.T) {
	t.Parallel()
	const (
		mixed = "GET / HTTP/1.1\r\nHost: " + shopHost + "\r\nX-Mixed-Case: yes\r\nConnection: close\r\n\r\n"
		old   = "GET / HTTP/1.0\r\nHost: " + shopHost + "\r\n\r\n"
		score = "GET / HTTP/1.1\r\nHost: " + shopHost + "\r\nunder_score: yes\r\nConnection: close\r\n\r\n"
	)
	type seen struct{ request, response, not []string }
	for name, c := range map[string]struct {
		mesh  string
		old   string // the status of an HTTP/1.0 request
		score string // the status of a request with an underscore
		want  seen
	}{
		"as Istio has it": {"{}", "426", "200", seen{
			[]string{"x-mixed-case: yes", "x-request-id: ", "x-envoy-attempt-count: 1"},
			[]string{"x-from-upstream: yes", "x-envoy-upstream-service-time: "}, []string{"X-Mixed-Case", "x-forwarded-port", "server: mine"},
		}},
		"otherwise": {`
defaultConfig:
  proxyHeaders: {preserveHttp1HeaderCase: true, server: {disabled: true}, requestId: {disabled: true}, attemptCount: {disabled: true}, envoyDebugHeaders: {disabled: true}, xForwardedPort: {enabled: true}}
  connectionSettings: {httpHeadersWithUnderscoresAction: HEADERS_WITH_UNDERSCORES_REJECT_REQUEST, http2InitialStreamWindowSize: 65536, listenerPerConnectionBufferLimitBytes: 65536}
  proxyMetadata: {ISTIO_META_HTTP10: "1", ISTIO_META_IDLE_TIMEOUT: 90s}
`, "200", "400", seen{
			[]string{"X-Mixed-Case: yes"}, []string{"X-From-Upstream: yes", "Server: mine"},
			[]string{"x-mixed-case", "x-request-id", "attempt-count", "upstream-service-time", "istio-envoy"},
		}},
		"another server": {"{defaultConfig: {proxyHeaders: {server: {value: ours}}}}", "426", "200", seen{
			[]string{"x-mixed-case: yes"}, []string{"server: ours"}, []string{"istio-envoy"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u, x := startRaw(t), newShop(t)
			s, in := startServer(t, serverOptions{meshConfig: c.mesh}), freePort(t)
			s.apply(x.entry(&upstream{name: "v1", port: u.port}), x.door(), fill(`
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: reviews, namespace: shop}
spec: {hosts: [$host], gateways: [edge, mesh], http: [{route: [{destination: {host: $host}}]}]}
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: default, namespace: shop}
spec:
  ingress: [{port: {number: $in, protocol: HTTP, name: http}, bind: 127.0.0.1, defaultEndpoint: "127.0.0.1:$app"}]
`, "$host", shopHost, "$in", in, "$app", u.port))
			edge := s.startEnvoy(envoyOptions{kind: "router", name: "edge", labels: "app=edge"})
			client := s.startEnvoy(envoyOptions{kind: "sidecar", name: "client", labels: "app=client", ip: "10.0.0.2"})
			for where, port := range map[string]int{"outbound": x.service, "inbound": in, "gateway": x.gateway} {
				var answer string
				eventually(t, where+" answers", func() error {
					var err error
					if answer, err = rawCall(port, mixed); err == nil && !strings.HasPrefix(answer, "HTTP/1.1 200 ") {
						err = fmt.Errorf("it answers %q", answer)
					}
					return err
				})
				request := u.seen()
				for _, part := range c.want.request {
					if !strings.Contains(request, part) {
						t.Errorf("%s: the application gets %q, want %q in it", where, request, part)
					}
				}
				for _, part := range c.want.response {
					if !strings.Contains(answer, part) {
						t.Errorf("%s: the client gets %q, want %q in it", where, answer, part)
					}
				}
				for _, part := range c.want.not {
					if strings.Contains(request, part) || strings.Contains(answer, part) {
						t.Errorf("%s: %q is in %q or %q", where, part, request, answer)
					}
				}
				for text, status := range map[string]string{old: c.old, score: c.score} {
					if got, err := rawCall(port, text); err != nil || !strings.Contains(got, " "+status+" ") {
						t.Errorf("%s: %q is answered %q, %v, want %s", where, text, got, err, status)
					}
				}
			}
			s.expectNothingRejected()
			client.expectNothingRejected()
			edge.expectNothingRejected()
		})
	}
}

package integration

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// trailing is a server of HTTP/1.1 and HTTP/2 without TLS whose answers have a trailer.
func trailing(t testing.TB) int {
	t.Helper()
	l := listen(t)
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	s := &http.Server{Protocols: protocols, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "X-Checksum")
		_, _ = io.Copy(w, r.Body)
		w.Header().Set("X-Checksum", "7")
	})}
	ended := make(chan struct{})
	go func() {
		_ = s.Serve(l)
		close(ended)
	}()
	t.Cleanup(func() { _ = s.Close(); <-ended })
	return portAt(l)
}

// settings returns the settings of HTTP/2 with which a port begins.
func settings(port int) (map[http2.SettingID]uint32, error) {
	c, err := net.Dial("tcp", local(port))
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		return nil, err
	}
	framer := http2.NewFramer(c, c)
	if err := framer.WriteSettings(); err != nil {
		return nil, err
	}
	frame, err := framer.ReadFrame()
	if err != nil {
		return nil, err
	}
	of, ok := frame.(*http2.SettingsFrame)
	if !ok {
		return nil, fmt.Errorf("the first frame is %v", frame.Header())
	}
	out := map[http2.SettingID]uint32{}
	return out, of.ForeachSetting(func(s http2.Setting) error {
		out[s.ID] = s.Val
		return nil
	})
}

// TestEnvoyHTTPEdges: what connection managers do at the edges of HTTP: large headers, 100 Continue,
// trailers, the host and port that were asked for, windows. A ProxyConfig of one group of machines
// changes them for its proxy alone.
func TestEnvoyHTTPEdges(t *testing.T) {
	t.Parallel()
	x, app, trailers := newShop(t), startUpstream(t, "app"), trailing(t)
	in, tuned, two := freePort(t), freePort(t), freePort(t)
	s := startServer(t, serverOptions{meshConfig: "{defaultConfig: {proxyHeaders: {xForwardedHost: {enabled: true}, xForwardedPort: {enabled: true}}}}"})
	s.apply(x.entry(app), x.door(), fill(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: two, namespace: shop}
spec:
  hosts: [two.shop.test]
  resolution: STATIC
  ports: [{number: $two, name: http2, protocol: HTTP2}]
  endpoints: [{address: 127.0.0.1, ports: {http2: $trailers}}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: reviews, namespace: shop}
spec:
  hosts: [$host]
  gateways: [edge, mesh]
  http:
  - {match: [{uri: {prefix: /other}}], rewrite: {authority: other.test}, route: [{destination: {host: $host}}]}
  - {route: [{destination: {host: $host}}]}
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: client, namespace: shop}
spec:
  workloadSelector: {labels: {app: client}}
  ingress: [{port: {number: $in, protocol: HTTP, name: http}, bind: 127.0.0.1, defaultEndpoint: "127.0.0.1:$app"}]
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: tuned, namespace: shop}
spec:
  workloadSelector: {labels: {app: tuned}}
  ingress: [{port: {number: $tuned, protocol: HTTP, name: http}, bind: 127.0.0.1, defaultEndpoint: "127.0.0.1:$app"}]
  egress: [{hosts: ["./none.shop.test"]}]
---
apiVersion: networking.istio.io/v1
kind: WorkloadGroup
metadata: {name: tuned, namespace: shop}
spec:
  metadata:
    labels: {app: tuned}
    annotations:
      proxy.istio.io/config: |
        runtimeValues: {envoy.reloadable_features.max_request_headers_size_kb: "96"}
        connectionSettings: {http2InitialStreamWindowSize: 131072, httpMaxConcurrentStreams: 77}
        proxyHeaders: {server: {value: tuned}}
  template: {}
`, "$two", two, "$trailers", trailers, "$host", shopHost, "$in", in, "$tuned", tuned, "$app", app.port))
	edge, client := s.startPair(protocol.Delta)
	own := s.startEnvoy(envoyOptions{kind: "sidecar", name: "tuned", labels: "app=tuned", ip: "127.0.0.1", group: "tuned", proxyConfig: true})
	doors := map[string]int{"gateway": x.gateway, "outbound": x.service, "inbound": in, "tuned": tuned}
	for name, port := range doors {
		awaitReply(t, request{port: port, host: shopHost}, "app")
		header := func(kb int) string {
			return send(t, request{port: port, host: shopHost, header: map[string]string{"x-large": strings.Repeat("a", kb<<10)}}).String()
		}
		want := map[int]string{50: "app", 70: "431", 100: "431"}
		if name == "tuned" {
			want[70] = "app"
		}
		for kb, end := range want {
			if got := header(kb); got != end {
				t.Errorf("%s: a header of %d KiB: %s, want %s", name, kb, got, end)
			}
		}
		has, err := settings(port)
		window, streams := has[http2.SettingInitialWindowSize], has[http2.SettingMaxConcurrentStreams]
		if ofTuned := window == 131072 && streams == 77; err != nil || ofTuned != (name == "tuned") {
			t.Errorf("%s: windows of %d bytes for %d streams, %v", name, window, streams, err)
		}
		if got := send(t, request{port: port, host: shopHost}).header.Get("Server"); (got == "tuned") != (name == "tuned") {
			t.Errorf("%s: the server is %q", name, got)
		}
	}
	for _, name := range []string{"gateway", "outbound"} {
		got := send(t, request{port: doors[name], host: shopHost, path: "/other"}).echo
		if host, port := got.Header.Get("X-Forwarded-Host"), got.Header.Get("X-Forwarded-Port"); got.Host != "other.test" || host != shopHost || port != fmt.Sprint(doors[name]) {
			t.Errorf("%s: a request for %s arrives at %s with x-forwarded-host %q and x-forwarded-port %q", name, shopHost, got.Host, host, port)
		}
	}
	if err := continues(two, "two.shop.test"); err != nil {
		t.Error(err)
	}
	protocols := &http.Protocols{}
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols}
	t.Cleanup(transport.CloseIdleConnections)
	eventually(t, "a trailer arrives", func() error {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+local(two)+"/", strings.NewReader("body"))
		if err != nil {
			return err
		}
		r.Host = "two.shop.test"
		response, err := transport.RoundTrip(r)
		if err != nil {
			return err
		}
		defer func() { _ = response.Body.Close() }()
		body, err := io.ReadAll(response.Body)
		if got := response.Trailer.Get("X-Checksum"); err == nil && (got != "7" || string(body) != "body") {
			err = fmt.Errorf("the trailer of %q is %q", body, got)
		}
		return err
	})
	s.expectNothingRejected()
	for _, e := range []*envoy{edge, client, own} {
		e.expectNothingRejected()
	}
}

// continues sends a request that waits with its body until the application says 100 Continue.
func continues(port int, host string) error {
	c, err := net.Dial("tcp", local(port))
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	in := bufio.NewReader(c)
	fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: %s\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n", host)
	if head, err := readHead(in); err != nil || !strings.HasPrefix(head, "HTTP/1.1 100 ") {
		return errors.Join(fmt.Errorf("before the body: %q", head), err)
	}
	if _, err := io.WriteString(c, "body"); err != nil {
		return err
	}
	if head, err := readHead(in); err != nil || !strings.HasPrefix(head, "HTTP/1.1 200 ") {
		return errors.Join(fmt.Errorf("after the body: %q", head), err)
	}
	return nil
}

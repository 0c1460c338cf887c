package integration

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// TestEnvoyTrustedProxies: what a client claims about itself reaches a service only as far as
// the gateways' topology setting trusts it.
func TestEnvoyTrustedProxies(t *testing.T) {
	const proof = "By=spiffe://cluster.local/ns/shop/sa/mallory"
	for name, c := range map[string]struct {
		topology        string
		client, claimed string // X-Envoy-External-Address and X-Forwarded-Client-Cert that the service gets
	}{
		"nobody is trusted":                {"{}", "127.0.0.1", ""},
		"one proxy is, with what it sends": {"{numTrustedProxies: 1, forwardClientCertDetails: ALWAYS_FORWARD_ONLY}", "203.0.113.9", proof},
		"without TLS there is no proof":    {"{numTrustedProxies: 2, forwardClientCertDetails: APPEND_FORWARD}", "198.51.100.7", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, x := startServer(t, serverOptions{meshConfig: "defaultConfig: {gatewayTopology: " + c.topology + "}"}), newShop(t)
			s.apply(x.all(100, 0))
			for _, v := range []protocol.Variant{protocol.Delta, protocol.StateOfTheWorld} {
				edge := s.startEnvoy(envoyOptions{kind: "router", name: "edge", labels: "app=edge", variant: v})
				awaitReply(t, x.atGateway("/"), "v1")
				q := x.atGateway("/")
				q.header = map[string]string{"X-Forwarded-For": "198.51.100.7, 203.0.113.9", "X-Forwarded-Client-Cert": proof}
				got := send(t, q).echo.Header
				expectEqual(t, v.String()+": the client", got.Get("X-Envoy-External-Address"), c.client)
				expectEqual(t, v.String()+": what it has proved", got.Get("X-Forwarded-Client-Cert"), c.claimed)
				edge.expectNothingRejected()
				edge.process.kill()
			}
			s.expectNothingRejected()
		})
	}
}

// proxyHeader is a header of the PROXY protocol: a connection of 203.0.113.7 to 192.0.2.1.
func proxyHeader(version int) []byte {
	if version == 1 {
		return []byte("PROXY TCP4 203.0.113.7 192.0.2.1 40000 80\r\n")
	}
	return append([]byte("\r\n\r\n\x00\r\nQUIT\n"), 0x21, 0x11, 0, 12, 203, 0, 113, 7, 192, 0, 2, 1, 40000>>8, 40000&0xff, 0, 80)
}

// TestEnvoyGatewayProxyProtocol: a gateway takes the client's address from the PROXY protocol
// header, in either version, and removes the header. It closes connections without one.
func TestEnvoyGatewayProxyProtocol(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, x, port := startServer(t, serverOptions{meshConfig: "defaultConfig: {gatewayTopology: {proxyProtocol: {}}}"}), newShop(t), freePort(t)
		s.apply(x.all(100, 0), streamEntry("ledger", "TCP", freePort(t), startTCPUpstream(t, "one")), bytesGateway(port), fill(`
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: ledger, namespace: shop}
spec: {hosts: [ledger.shop.test], gateways: [bytes], tcp: [{route: [{destination: {host: ledger.shop.test}}]}]}
`))
		edge := s.startEnvoy(envoyOptions{kind: "router", name: "edge", labels: "app=edge", variant: v})
		for version := 1; version <= 2; version++ {
			through := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				return dialProxied(ctx, address, version)
			}}
			t.Cleanup(through.CloseIdleConnections)
			eventually(t, fmt.Sprintf("a request by version %d", version), func() error {
				got, err := do(t.Context(), &http.Client{Transport: through, Timeout: 15 * time.Second}, x.atGateway("/"))
				if err != nil || got.echo.Upstream != "v1" {
					return fmt.Errorf("%v, %v", got, err)
				}
				expectEqual(t, "the client", got.echo.Header.Get("X-Forwarded-For"), "203.0.113.7")
				return nil
			})
			c, err := dialProxied(t.Context(), local(port), version)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			_ = c.SetDeadline(time.Now().Add(patience))
			lines := bufio.NewReader(c)
			if _, err := fmt.Fprintln(c, "hello"); err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{"one\n", "hello\n"} {
				if got, err := lines.ReadString('\n'); err != nil || got != want {
					t.Errorf("version %d: the service sends %q, %v, want %q", version, got, err, want)
				}
			}
		}
		if got, err := do(t.Context(), clientOf(t), x.atGateway("/")); err == nil {
			t.Errorf("a request without the header is answered: %v", got)
		}
		expectClosedBefore(t, port)
		s.expectNothingRejected()
		edge.expectNothingRejected()
	})
}

// dialProxied connects, and sends a PROXY protocol header.
func dialProxied(ctx context.Context, address string, version int) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	if _, err := c.Write(proxyHeader(version)); err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// expectClosedBefore sends something else than a PROXY protocol header to a port that requires
// one.
func expectClosedBefore(t testing.TB, port int) {
	t.Helper()
	c, err := net.Dial("tcp", local(port))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := fmt.Fprintln(c, "hello, this is not a header at all"); err != nil {
		t.Fatal(err)
	}
	if got, _ := io.ReadAll(c); len(got) > 0 {
		t.Errorf("without the header %q comes back", got)
	}
}

package integration

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// TestEnvoyTunnel: connections to a service go through an HTTP proxy, its endpoint, to a target
// that only the proxy can reach. They use CONNECT, then POST, then no tunnel.
func TestEnvoyTunnel(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, port := startServer(t, serverOptions{}), freePort(t)
		proxy := serveTCP(t, listen(t), serveTunnel)
		s.apply(fill(ledgerEntry, "$port", port, "$target", proxy), ledgerPolicy("{tunnel: {targetHost: far.test, targetPort: 1234}}"))
		client := s.startEnvoy(envoyOptions{kind: "sidecar", name: "client", variant: v})
		awaitThrough(t, port, "CONNECT far.test:1234: hello")
		s.awaitSynced(s.apply(ledgerPolicy("{tunnel: {protocol: POST, targetHost: other.test, targetPort: 99}}")), "client")
		awaitThrough(t, port, "POST other.test:99: hello")
		s.awaitSynced(s.apply(ledgerPolicy("{connectionPool: {tcp: {maxConnections: 9}}}")), "client")
		awaitThrough(t, port, "no tunnel: hello")
		s.expectNothingRejected()
		client.expectNothingRejected()
	})
}

// serveTunnel is an HTTP proxy for one connection. Its only target answers a line with the
// request that opened the tunnel, and the line.
func serveTunnel(c net.Conn) {
	r := bufio.NewReader(c)
	first, err := r.ReadString('\n')
	if err != nil {
		return
	}
	if !strings.Contains(first, "HTTP/1.1") {
		fmt.Fprintf(c, "no tunnel: %s", first)
		return
	}
	request, err := http.ReadRequest(bufio.NewReader(io.MultiReader(strings.NewReader(first), r)))
	if err != nil {
		return
	}
	var sent io.Reader = r
	out := func(text string) { _, _ = io.WriteString(c, text) }
	if request.Method == http.MethodConnect {
		out("HTTP/1.1 200 OK\r\n\r\n")
	} else {
		sent = request.Body
		out("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
		out = func(text string) { fmt.Fprintf(c, "%x\r\n%s\r\n", len(text), text) }
	}
	if line, err := bufio.NewReader(sent).ReadString('\n'); err == nil {
		out(fmt.Sprintf("%s %s: %s", request.Method, request.Host, line))
	}
	_, _ = io.Copy(io.Discard, sent)
}

// awaitThrough waits until the answer to a line on a port is want.
func awaitThrough(t testing.TB, port int, want string) {
	t.Helper()
	eventually(t, "the answer is "+want, func() error {
		c, err := net.Dial("tcp", local(port))
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		_ = c.SetDeadline(time.Now().Add(time.Second))
		if _, err := io.WriteString(c, "hello\n"); err != nil {
			return err
		}
		got, err := bufio.NewReader(c).ReadString('\n')
		if err == nil && strings.TrimSpace(got) != want {
			err = fmt.Errorf("it is %q", got)
		}
		return err
	})
}

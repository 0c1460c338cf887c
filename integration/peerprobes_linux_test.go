package integration

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
)

// peerProbe calls one kind of port through the sidecar of the client, and sends secretWord.
type peerProbe struct {
	name string
	// call returns whom the server saw.
	call func() (shown string, err error)
	// shows says whether the sidecar of the server can tell it.
	shows bool
	// kept says whether the sidecar of the client keeps the connection for later calls though
	// that of the server, which sees bytes, cannot tell it to end.
	kept bool
}

func (m *peerMesh) probes() []peerProbe {
	request := func(port int, name string) func() (string, error) {
		return func() (string, error) {
			got, err := m.through(port, "/"+secretWord)
			if err == nil && (got.status != http.StatusOK || got.String() != name) {
				err = fmt.Errorf("it answers %s", got)
			}
			return got.echo.Header.Get("X-Forwarded-Client-Cert"), err
		}
	}
	return []peerProbe{
		{name: "HTTP", call: request(80, "http"), shows: true},
		{name: "HTTP/2", call: request(81, "http2"), shows: true},
		{name: "gRPC", call: func() (string, error) { return m.rpc(captureMark, "10.9.0.1:82") }, shows: true},
		{name: "a WebSocket", call: m.upgraded, shows: true},
		{name: "TCP, where the server speaks first", call: func() (string, error) {
			return "", greets(m.client, captureMark, "10.9.0.1:5432", "", peerGreeting)
		}},
		// HTTP of a port that declares nothing is bytes to the sidecar of the server.
		{name: "a port that declares nothing", call: request(90, "plain"), kept: true},
	}
}

// failures returns how many handshakes of the proxy failed for a reason, by Envoy's counters.
func (e *envoy) failures(reason string) (total int) {
	e.t.Helper()
	all, err := e.stats(`ssl\.` + reason + `$`)
	if err != nil {
		e.t.Fatal(err)
	}
	for _, n := range all {
		total += n
	}
	return total
}

// peerRPC answers health checks, and tells the client whom it saw.
type peerRPC struct {
	healthpb.UnimplementedHealthServer
}

// Check implements the service.
func (peerRPC) Check(ctx context.Context, _ *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	got, _ := metadata.FromIncomingContext(ctx)
	err := grpc.SetHeader(ctx, metadata.Pairs("shown", strings.Join(got["x-forwarded-client-cert"], ",")))
	return &healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_SERVING}, err
}

// servePeerRPC serves gRPC at a listener until the test ends.
func servePeerRPC(t testing.TB, l net.Listener) {
	t.Helper()
	s := grpc.NewServer()
	healthpb.RegisterHealthServer(s, peerRPC{})
	var running sync.WaitGroup
	running.Go(func() { _ = s.Serve(l) })
	t.Cleanup(func() { s.Stop(); running.Wait() })
}

// rpc calls a gRPC server from the network of the client, on a new connection, and returns whom
// the server saw.
func (m *peerMesh) rpc(mark int, address string) (shown string, err error) {
	ctx, cancel := context.WithTimeout(m.t.Context(), 5*time.Second)
	defer cancel()
	c, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority("app.shop.test"),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) { return m.client.dial(ctx, address, mark) }))
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	var header metadata.MD
	if _, err := healthpb.NewHealthClient(c).Check(ctx, &healthpb.HealthCheckRequest{Service: secretWord}, grpc.Header(&header)); err != nil {
		return "", err
	}
	return strings.Join(header["shown"], ","), nil
}

// upgraded makes a WebSocket of a connection through the sidecar of the client, has the server
// echo something there, and returns whom the server saw.
func (m *peerMesh) upgraded() (shown string, err error) {
	ctx, cancel := context.WithTimeout(m.t.Context(), 5*time.Second)
	defer cancel()
	c, err := m.client.dial(ctx, "10.9.0.1:80", captureMark)
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://app.shop.test/", nil)
	if err != nil {
		return "", err
	}
	r.Header = http.Header{
		"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="},
	}
	if err := r.Write(c); err != nil {
		return "", err
	}
	in := bufio.NewReader(c)
	a, err := http.ReadResponse(in, r)
	if err != nil {
		return "", err
	}
	defer func() { _ = a.Body.Close() }()
	if a.StatusCode != http.StatusSwitchingProtocols {
		return "", errors.New(a.Status)
	}
	if _, err := fmt.Fprintln(c, secretWord); err != nil {
		return "", err
	}
	if line, err := in.ReadString('\n'); err != nil || line != secretWord+"\n" {
		return "", fmt.Errorf("the WebSocket has %q: %w", line, err)
	}
	return a.Header.Get("shown"), nil
}

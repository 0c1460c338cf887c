package integration

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// echo describes a request as an upstream received it.
type echo struct {
	Upstream string
	Method   string
	Path     string // with the query
	Host     string
	Proto    string
	Header   http.Header
	// Peer is the identity that a gRPC server saw.
	Peer string `json:",omitempty"`
	// Attempt is the number of requests with the same x-case header so far, including this one.
	Attempt int
}

// upstream is a server of HTTP/1.1 and of HTTP/2 without TLS that answers with an echo. Request
// headers change what it does: x-delay is how long the answer takes, and x-fail how many of the
// requests with the same x-case get 503.
type upstream struct {
	name string
	port int
	stop func() // ends it before the end of the test
	// failing is the status of all responses, 0 for none.
	failing atomic.Int32

	mu       sync.Mutex
	attempts map[string]int
	hosts    map[string]string // of the last request of a case
}

// startUpstream runs an upstream until the test ends.
func startUpstream(t testing.TB, name string) *upstream {
	t.Helper()
	return serveUpstream(t, name, listen(t))
}

// listen listens on a free port of 127.0.0.1.
func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// serveUpstream is startUpstream on a listener, which it closes.
func serveUpstream(t testing.TB, name string, l net.Listener) *upstream {
	t.Helper()
	u := &upstream{name: name, port: portAt(l), attempts: map[string]int{}, hosts: map[string]string{}}
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Handler: u, Protocols: protocols}
	var running sync.WaitGroup
	running.Go(func() { _ = server.Serve(l) })
	u.stop = func() {
		_ = server.Close()
		running.Wait()
	}
	t.Cleanup(u.stop)
	return u
}

// ServeHTTP implements http.Handler.
func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	u.mu.Lock()
	u.attempts[r.Header.Get("x-case")]++
	u.hosts[r.Header.Get("x-case")] = r.Host
	attempt := u.attempts[r.Header.Get("x-case")]
	u.mu.Unlock()
	if delay, err := time.ParseDuration(r.Header.Get("x-delay")); err == nil {
		select {
		case <-time.After(delay):
		case <-r.Context().Done():
			return
		}
	}
	if status := u.failing.Load(); status != 0 {
		w.WriteHeader(int(status))
		return
	}
	if n, err := strconv.Atoi(r.Header.Get("x-fail")); err == nil && attempt <= n {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	if r.Header.Get("Upgrade") == "websocket" {
		upgrade(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(echo{
		Upstream: u.name, Method: r.Method, Path: r.URL.RequestURI(), Host: r.Host, Proto: r.Proto, Header: r.Header, Attempt: attempt,
	})
}

// upgrade makes a WebSocket of the connection of a request, and echoes what comes on it. It shows
// the client whom the sidecar of the server saw.
func upgrade(w http.ResponseWriter, r *http.Request) {
	c, both, err := http.NewResponseController(w).Hijack()
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	defer func() { _ = c.Close() }()
	fmt.Fprintf(both, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nshown: %s\r\n\r\n", r.Header.Get("X-Forwarded-Client-Cert"))
	if both.Flush() == nil {
		_, _ = io.Copy(c, both)
	}
}

// startTCPUpstream runs a server that greets with its name and echoes what it receives. It
// returns its port.
func startTCPUpstream(t testing.TB, name string) int {
	t.Helper()
	return serveTCPUpstream(t, name, listen(t))
}

// serveTCPUpstream is startTCPUpstream on a listener, which it closes.
func serveTCPUpstream(t testing.TB, name string, l net.Listener) int {
	t.Helper()
	return serveTCP(t, l, func(c net.Conn) {
		fmt.Fprintln(c, name)
		_, _ = io.Copy(c, c)
	})
}

// serveTCP handles the connections of a listener until the test ends, and then closes them. It
// returns the listener's port.
func serveTCP(t testing.TB, l net.Listener, handle func(net.Conn)) int {
	t.Helper()
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer func() { _ = c.Close() }()
				_ = c.SetDeadline(time.Now().Add(patience))
				handle(c)
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		running.Wait()
	})
	return portAt(l)
}

// portAt returns the port of a listener, 0 for a Unix domain socket.
func portAt(l net.Listener) int {
	if tcp, ok := l.Addr().(*net.TCPAddr); ok {
		return tcp.Port
	}
	return 0
}

// hostOf returns the host of the last request of a case.
func (u *upstream) hostOf(name string) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.hosts[name]
}

// attemptsOf returns the number of requests of a case so far.
func (u *upstream) attemptsOf(name string) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.attempts[name]
}

package health_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	grpchealth "google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/portolan-mesh/portolan/cmd/portolan-agent/health"
	"github.com/portolan-mesh/portolan/xds/names/probe"
)

func within(d time.Duration, p *probe.Probe) *probe.Probe {
	p.Timeout = durationpb.New(d)
	return p
}

// check makes a check, and compares the reason; an empty one stands for success.
func check(t *testing.T, c health.Checker, what string, p *probe.Probe, want string) {
	t.Helper()
	if p.GetTimeout() == nil {
		within(10*time.Second, p)
	}
	got := ""
	if err := c.Check(t.Context(), p); err != nil {
		got = err.Error()
	}
	if got != want {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

func portOf(t *testing.T, l net.Listener) uint32 {
	t.Helper()
	_, text, _ := net.SplitHostPort(l.Addr().String())
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		t.Fatal(err)
	}
	return uint32(port)
}

// freePort is a port at which nobody listens.
func freePort(t *testing.T) uint32 {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return portOf(t, l)
}

func httpGet(port uint32, path string) *probe.Probe {
	return &probe.Probe{Check: &probe.Probe_HttpGet{HttpGet: &probe.Probe_HTTPGet{Port: port, Path: path}}}
}

func application(release <-chan struct{}) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/status/{code}", func(w http.ResponseWriter, r *http.Request) {
		code, _ := strconv.Atoi(r.PathValue("code"))
		w.WriteHeader(code)
	})
	mux.HandleFunc("/to", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, r.URL.Query().Get("url"), http.StatusFound)
	})
	mux.HandleFunc("/loop", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/loop", http.StatusFound) })
	mux.HandleFunc("/hang", func(http.ResponseWriter, *http.Request) { <-release })
	mux.HandleFunc("/headers", func(w http.ResponseWriter, r *http.Request) {
		if r.Host != "app.example" || strings.Join(r.Header["X-Two"], ",") != "a,b" {
			http.Error(w, "odd headers", http.StatusTeapot)
		}
	})
	return mux
}

func TestHTTPChecks(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	app, secure := httptest.NewServer(application(release)), httptest.NewTLSServer(application(release))
	t.Cleanup(app.Close)
	t.Cleanup(secure.Close)
	t.Cleanup(func() { close(release) })
	port, c := portOf(t, app.Listener), health.Checker{}
	at := func(path string) string { return fmt.Sprintf("GET http://127.0.0.1:%d%s: ", port, path) }
	for code, want := range map[int]string{200: "", 204: "", 304: "", 399: "", 400: "400 Bad Request", 404: "404 Not Found", 500: "500 Internal Server Error", 503: "503 Service Unavailable"} {
		path := fmt.Sprintf("/status/%d", code)
		if want != "" {
			want = at(path) + want
		}
		check(t, c, path, httpGet(port, path), want)
	}
	check(t, c, "a path without a slash", httpGet(port, "status/200"), "")
	check(t, c, "a redirect to a failure", httpGet(port, "/to?url=/status/500"), at("/to?url=/status/500")+"500 Internal Server Error")
	check(t, c, "a redirect to another host", httpGet(port, "/to?url=http://elsewhere.invalid/"), "")
	check(t, c, "a loop", httpGet(port, "/loop"), at("/loop")+"more than 10 redirects")
	check(t, c, "no answer in time", within(50*time.Millisecond, httpGet(port, "/hang")), at("/hang")+"no answer within 50ms")
	with := httpGet(port, "/headers")
	with.GetHttpGet().Headers = []*probe.Probe_Header{{Name: "host", Value: "app.example"}, {Name: "X-Two", Value: "a"}, {Name: "X-Two", Value: "b"}}
	check(t, c, "headers", with, "")
	tls := httpGet(portOf(t, secure.Listener), "/status/200")
	tls.GetHttpGet().Tls = true
	check(t, c, "a certificate that nobody vouches for", tls, "")
	nobody := freePort(t)
	check(t, c, "nobody listens", httpGet(nobody, "/"), fmt.Sprintf("GET http://127.0.0.1:%d/: connection refused", nobody))
	named := httpGet(port, "/status/200")
	named.GetHttpGet().Host = "localhost"
	check(t, health.Checker{Addresses: func() []string { return []string{"192.0.2.1"} }}, "a named host", named, "")
}

func TestTCPChecks(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	at := func(port uint32) *probe.Probe {
		return &probe.Probe{Check: &probe.Probe_TcpSocket{TcpSocket: &probe.Probe_TCPSocket{Port: port}}}
	}
	check(t, health.Checker{}, "a listener", at(portOf(t, l)), "")
	nobody := freePort(t)
	check(t, health.Checker{}, "nobody listens", at(nobody), fmt.Sprintf("tcp 127.0.0.1:%d: connection refused", nobody))
	check(t, health.Checker{}, "no method", &probe.Probe{}, "this agent does not know the method of the probe: install a newer one")
}

// TestChecksOfTheMachinesAddress: a check of the machine's own address comes from the address of
// sidecars, which the rules of capture let pass.
func TestChecksOfTheMachinesAddress(t *testing.T) {
	t.Parallel()
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	own := ""
	for _, a := range all {
		if ip := a.(*net.IPNet).IP; ip.To4() != nil && !ip.IsLoopback() {
			own = ip.String()
		}
	}
	if own == "" {
		t.Skip("the machine has no address but loopback")
	}
	l, err := net.Listen("tcp", net.JoinHostPort(own, "0"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	from := make(chan string, 1)
	go func() {
		conn, err := l.Accept()
		if err == nil {
			host, _, _ := net.SplitHostPort(conn.RemoteAddr().String())
			from <- host
			_ = conn.Close()
		}
	}()
	check(t, health.Checker{Addresses: func() []string { return []string{own} }}, "its own address", &probe.Probe{Check: &probe.Probe_TcpSocket{TcpSocket: &probe.Probe_TCPSocket{Port: portOf(t, l)}}}, "")
	if got := <-from; got != "127.0.0.6" {
		t.Errorf("the check comes from %s", got)
	}
}

func TestGRPCChecks(t *testing.T) {
	t.Parallel()
	serve := func(register func(*grpc.Server)) uint32 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s := grpc.NewServer(grpc.WaitForHandlers(true))
		register(s)
		done := make(chan struct{})
		go func() { defer close(done); _ = s.Serve(l) }()
		t.Cleanup(func() { s.Stop(); <-done })
		return portOf(t, l)
	}
	states := grpchealth.NewServer()
	states.SetServingStatus("up", grpc_health_v1.HealthCheckResponse_SERVING)
	states.SetServingStatus("down", grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	with := serve(func(s *grpc.Server) { grpc_health_v1.RegisterHealthServer(s, states) })
	without := serve(func(*grpc.Server) {})
	nobody := freePort(t)
	mute, err := net.Listen("tcp", "127.0.0.1:0") // it accepts, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = mute.Close() })
	at := func(port uint32, service string) *probe.Probe {
		return &probe.Probe{Check: &probe.Probe_Grpc{Grpc: &probe.Probe_GRPC{Port: port, Service: service}}}
	}
	says := func(port uint32, service, why string) string {
		return fmt.Sprintf("grpc 127.0.0.1:%d/%s: %s", port, service, why)
	}
	c := health.Checker{}
	check(t, c, "the server as a whole", at(with, ""), "")
	check(t, c, "a service that serves", at(with, "up"), "")
	check(t, c, "one that does not", at(with, "down"), says(with, "down", "NOT_SERVING"))
	check(t, c, "an unknown one", at(with, "odd"), says(with, "odd", `it does not know the service "odd"`))
	check(t, c, "a server without health", at(without, ""), says(without, "", "it does not serve grpc.health.v1.Health"))
	check(t, c, "nobody listens", at(nobody, ""), says(nobody, "", "connection refused"))
	silent := portOf(t, mute)
	check(t, c, "no answer in time", within(50*time.Millisecond, at(silent, "")), says(silent, "", "no answer within 50ms"))
}

func TestExecChecks(t *testing.T) {
	t.Parallel()
	run := func(command ...string) *probe.Probe {
		return &probe.Probe{Check: &probe.Probe_Exec_{Exec: &probe.Probe_Exec{Command: command}}}
	}
	c := health.Checker{Exec: true}
	check(t, c, "0", run("true"), "")
	check(t, c, "1", run("false"), "exec false: exit status 1")
	check(t, c, "with a word", run("sh", "-c", "echo no disk; echo more; exit 7"), `exec sh -c echo no disk; echo more; exit 7: exit status 7, "no disk"`)
	check(t, c, "no such program", run("/no/such/program"), "exec /no/such/program: fork/exec /no/such/program: no such file or directory")
	check(t, health.Checker{}, "without leave", run("true"), "exec true: this machine allows no probes that run programs: set health.exec in the file of its agent, or give the probe another method")

	file := filepath.Join(t.TempDir(), "pid")
	hung := within(time.Second, run("sh", "-c", "sleep 1000 & echo $! > "+file+"; wait"))
	if err := c.Check(t.Context(), hung); err == nil || !strings.HasSuffix(err.Error(), ": no answer within 1s") {
		t.Errorf("a program that hangs: %v", err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); running(pid); {
		if time.Now().After(end) {
			t.Fatalf("its child %d runs on", pid)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Check(ctx, run("sleep", "1000")); err == nil {
		t.Error("a check that is not wanted any more succeeds")
	}
}

// running says whether a process runs: not whether its parent has asked for its end.
func running(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ") && syscall.Kill(pid, 0) == nil
}

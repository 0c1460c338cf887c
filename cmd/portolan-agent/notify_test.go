package main

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/cmd/portolan-agent/health"
)

// manager is a service manager: the other end of a socket.
type manager struct {
	t    *testing.T
	conn *net.UnixConn
}

func newManager(t *testing.T) *manager {
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	return &manager{t, conn}
}

func (m *manager) read() string {
	m.t.Helper()
	buffer := make([]byte, 4096)
	if err := m.conn.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		m.t.Fatal(err)
	}
	n, err := m.conn.Read(buffer)
	if err != nil {
		m.t.Fatalf("the agent says nothing more: %v", err)
	}
	return string(buffer[:n])
}

// next returns the next message other than those for the watchdog.
func (m *manager) next() string {
	m.t.Helper()
	for {
		if text := m.read(); text != "WATCHDOG=1" {
			return text
		}
	}
}

func (m *manager) expect(what string, want ...string) {
	m.t.Helper()
	var got []string
	for range want {
		got = append(got, m.next())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		m.t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// TestNotifier: the service manager hears when the agent is ready, why not, that it lives, and that
// it stops.
func TestNotifier(t *testing.T) {
	m := newManager(t)
	t.Setenv("WATCHDOG_USEC", "20000")
	a := &agent{logger: slog.New(slog.DiscardHandler), health: health.New(health.Options{})}
	n, err := a.newNotifier()
	if err != nil || n == nil || n.watchdog != 20*time.Millisecond {
		t.Fatalf("the notifier is %+v, %v", n, err)
	}
	m.expect("to find out whether it is asked", "STATUS=starts")
	var proxy, workload atomic.Value
	proxy.Store("the Envoy is\nINITIALIZING")
	workload.Store("")
	n.unready = func(context.Context) []string {
		if text := proxy.Load().(string); text != "" {
			return []string{text}
		}
		return nil
	}
	n.unfit = func(out []string) []string {
		if text := workload.Load().(string); text != "" {
			out = append(slices.Clone(out), text)
		}
		return out
	}
	ctx, stop := context.WithCancel(t.Context())
	supply, end := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); n.run(ctx, supply) }()
	t.Cleanup(func() { stop(); end(); <-done })
	m.expect("at first", "STATUS=not ready: the Envoy is INITIALIZING")
	workload.Store("the workload is unhealthy: 503")
	m.expect("both", "STATUS=not ready: the Envoy is INITIALIZING; the workload is unhealthy: 503")
	proxy.Store("")
	m.expect("the proxy is ready", "READY=1", "STATUS=not ready: the workload is unhealthy: 503")
	workload.Store("")
	m.expect("all is", "STATUS=ready")
	proxy.Store("the Envoy does not run")
	m.expect("it is not any more", "STATUS=not ready: the Envoy does not run")
	stop()
	m.expect("at the end", "STOPPING=1")
	proxy.Store("the agent ends and drains")
	m.expect("while it drains", "STATUS=not ready: the agent ends and drains")
	if text := m.read(); text != "WATCHDOG=1" {
		t.Errorf("while it drains it says %s, and not that it lives", text)
	}
}

// TestNoNotifier: an agent that no service manager has started tells none.
func TestNoNotifier(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	if n, err := (&agent{}).newNotifier(); n != nil || err != nil {
		t.Errorf("the notifier is %+v, %v", n, err)
	}
}

package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// namespace is a network namespace of a test.
type namespace struct {
	t    testing.TB
	name string
}

// needNamespaces skips a test that captures traffic if the user may not make networks, or tools
// are missing. In CI a missing tool is a failure.
func needNamespaces(t testing.TB) {
	t.Helper()
	needNetworks(t, "ip", "nft", "setpriv")
}

// needNetworks skips a test if the user may not make networks, or one of the tools is missing.
// In CI a missing tool is a failure.
func needNetworks(t testing.TB, tools ...string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("SKIPPED, AND NOTHING WAS TESTED: no network namespaces: the test does not run as root")
	}
	needTools(t, tools...)
}

// needTools skips a test if one of the tools is missing. In CI that is a failure.
func needTools(t testing.TB, tools ...string) {
	t.Helper()
	packages := map[string]string{"ip": "iproute2", "nft": "nftables", "setpriv": "util-linux", "openssl": "openssl", "dig": "bind9-dnsutils", "curl": "curl",
		"lintian": "lintian", "rpm": "rpm", "systemd-analyze": "systemd", "/lib/systemd/systemd": "systemd", "dbus-daemon": "dbus", "qemu-aarch64-static": "qemu-user-static"}
	var missing []string
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			missing = append(missing, fmt.Sprintf("%s (install the package %s)", tool, packages[tool]))
		}
	}
	if len(missing) == 0 {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatalf("tools are missing: %s", strings.Join(missing, ", "))
	}
	t.Skipf("SKIPPED, AND NOTHING WAS TESTED: tools are missing: %s", strings.Join(missing, ", "))
}

// namespaces counts the namespaces, to give each another name.
var namespaces atomic.Int32

// newNamespace makes a network namespace with a loopback interface that is up. It is removed
// when the test ends.
func newNamespace(t testing.TB, short string) *namespace {
	t.Helper()
	n := &namespace{t, fmt.Sprintf("portolan-%s-%d-%d", short, os.Getpid(), namespaces.Add(1))}
	if err := run0("ip", "netns", "add", n.name); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skipf("SKIPPED, AND NOTHING WAS TESTED: no network namespaces: %v", err)
	}
	t.Cleanup(func() { _ = run0("ip", "netns", "del", n.name) })
	n.ip("link", "set", "lo", "up")
	return n
}

// run0 runs a command that prints nothing on success.
func run0(command ...string) error { return runWith(nil, command...) }

func runWith(stdin io.Reader, command ...string) error {
	c := exec.Command(command[0], command[1:]...)
	c.Stdin = stdin
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(command, " "), err, bytes.TrimSpace(out))
	}
	return nil
}

func (n *namespace) command() []string { return []string{"ip", "netns", "exec", n.name} }

// asUser runs programs in a namespace as another user, who may read the test's files and change
// networks, as a transparent sidecar must.
type asUser struct {
	*namespace
	uid int
}

func (u asUser) command() []string {
	id := fmt.Sprint(u.uid)
	return append(u.namespace.command(), "setpriv", "--reuid", id, "--regid", id, "--clear-groups",
		"--inh-caps", "+dac_override,+net_admin", "--ambient-caps", "+dac_override,+net_admin")
}

// ip sets up the network.
func (n *namespace) ip(args ...string) {
	n.t.Helper()
	if err := run0(append([]string{"ip", "-n", n.name}, args...)...); err != nil {
		n.t.Fatal(err)
	}
}

// up gives a device its addresses, and sets it up.
func (n *namespace) up(device string, addresses ...string) {
	n.t.Helper()
	for _, address := range addresses {
		options := []string{"addr", "add", address, "dev", device}
		if strings.Contains(address, ":") {
			options = append(options, "nodad")
		}
		n.ip(options...)
	}
	n.ip("link", "set", device, "up")
}

// nft loads rules of the packet filter.
func (n *namespace) nft(rules string) {
	n.t.Helper()
	if err := runWith(strings.NewReader(rules), append(n.command(), "nft", "-f", "-")...); err != nil {
		n.t.Fatal(err)
	}
}

// inside runs f on a thread in the namespace, so that sockets belong to the namespace. The
// thread ends with f.
func (n *namespace) inside(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked, so the thread ends
		file, err := os.Open("/run/netns/" + n.name)
		if err != nil {
			done <- err
			return
		}
		defer func() { _ = file.Close() }()
		if err := unix.Setns(int(file.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("enter %s: %w", n.name, err)
			return
		}
		done <- f()
	}()
	return <-done
}

// dial connects from the namespace. The packets of the connection have a mark, unless it is 0.
func (n *namespace) dial(ctx context.Context, address string, mark int) (c net.Conn, err error) {
	d := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		if mark == 0 {
			return nil
		}
		return errors.Join(raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, mark) }), err)
	}}
	err = n.inside(func() error {
		c, err = d.DialContext(ctx, "tcp", address)
		return err
	})
	return c, err
}

// listen listens on an address in the namespace.
func (n *namespace) listen(address string) (l net.Listener) {
	n.t.Helper()
	if err := n.inside(func() (err error) {
		l, err = net.Listen("tcp", address)
		return err
	}); err != nil {
		n.t.Fatal(err)
	}
	return l
}

func (n *namespace) http(t testing.TB) *http.Client { return n.marked(t, 0) }

// marked returns an HTTP client in the namespace whose packets have a mark.
func (n *namespace) marked(t testing.TB, mark int) *http.Client {
	client := clientOf(t)
	transport := client.Transport.(*http.Transport)
	transport.DisableKeepAlives = true
	transport.DialContext = func(ctx context.Context, _, address string) (net.Conn, error) { return n.dial(ctx, address, mark) }
	return client
}

// startSocketRelay forwards connections on a Unix socket to the first of some addresses of the
// machine that takes them, until the test ends. All networks of the machine can reach the socket. It returns the socket's
// path.
func startSocketRelay(t testing.TB, targets ...string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "portolan-") // paths of sockets have to be short
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "xds.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	passOn(t, l, func(ctx context.Context) (up net.Conn, err error) {
		for _, target := range targets {
			if up, err = (&net.Dialer{}).DialContext(ctx, "tcp", target); err == nil {
				break
			}
		}
		return up, err
	})
	return "unix://" + path
}

// passOn forwards the connections of a listener to connections of dial, until the test ends.
func passOn(t testing.TB, l net.Listener, dial func(context.Context) (net.Conn, error)) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() { join(ctx, c, dial) })
		}
	})
	t.Cleanup(func() {
		cancel()
		_ = l.Close()
		running.Wait()
	})
}

// join forwards bytes between a connection and one of dial until either ends.
func join(ctx context.Context, c net.Conn, dial func(context.Context) (net.Conn, error)) {
	defer func() { _ = c.Close() }()
	up, err := dial(ctx)
	if err != nil {
		return
	}
	defer func() { _ = up.Close() }()
	stop := context.AfterFunc(ctx, func() { _, _ = c.Close(), up.Close() })
	defer stop()
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(c, up)
		_ = c.Close()
	})
	_, _ = io.Copy(up, c)
	_ = up.Close()
	back.Wait()
}

package serve

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// dialedSocket names the socket that the child of TestXDSSocketKnowsItsPeers connects to.
const dialedSocket = "PORTOLAN_TEST_SOCKET"

// TestXDSSocketKnowsItsPeers: the socket lets in its own user, and closes the connection of
// another, also if the rights of the file would let that one in.
func TestXDSSocketKnowsItsPeers(t *testing.T) {
	if path := os.Getenv(dialedSocket); path != "" {
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if b, err := io.ReadAll(c); len(b) > 0 || err != nil {
			t.Fatalf("the server says %q, %v", b, err)
		}
		return
	}
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can be another user, too")
	}
	dir, log := t.TempDir(), &bytes.Buffer{}
	o := Options{XDSSocket: filepath.Join(dir, "xds.sock"), Logger: slog.New(slog.NewTextHandler(log, nil))}
	l, err := o.listenXDSSocket()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	accepted := make(chan net.Conn, 2)
	go func() {
		defer close(accepted)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("hello"))
			_ = c.Close()
			accepted <- c
		}
	}()
	for _, d := range []string{filepath.Dir(dir), dir} { // the other user has to get there
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	info, err := os.Stat(o.XDSSocket)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket has the mode %v, %v", info.Mode(), err)
	}
	if err := os.Chmod(o.XDSSocket, 0o666); err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run", "^"+t.Name()+"$")
	child.Env, child.Dir = append(os.Environ(), dialedSocket+"="+o.XDSSocket), dir
	child.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if out, err := child.CombinedOutput(); err != nil {
		t.Fatalf("as another user: %v\n%s", err, out)
	}
	c, err := net.Dial("unix", o.XDSSocket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if b, err := io.ReadAll(c); string(b) != "hello" || err != nil {
		t.Errorf("the own user reads %q, %v", b, err)
	}
	if first := <-accepted; first.RemoteAddr().String() != o.XDSSocket+"#1" {
		t.Errorf("the first accepted connection is from %s", first.RemoteAddr())
	}
	_ = l.Close()
	for c := range accepted {
		t.Errorf("another connection was accepted: %v", c)
	}
	if text := log.String(); strings.Count(text, "refusing a connection") != 1 || !strings.Contains(text, "user=65534") {
		t.Errorf("the log says:\n%s", text)
	}
}

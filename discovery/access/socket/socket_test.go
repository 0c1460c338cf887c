package socket_test

import (
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/portolan-mesh/portolan/discovery/access/socket"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve answers on a socket until the test ends.
func serve(t *testing.T, path, answer string) *socket.Listener {
	t.Helper()
	l, err := socket.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(answer)) })}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close(); <-done })
	return l
}

func TestOnlyItsUserCanOpenIt(t *testing.T) {
	t.Parallel()
	for name, dir := range map[string]string{"short": t.TempDir(), "long": filepath.Join(t.TempDir(), strings.Repeat("d", 150))} {
		if name == "long" && runtime.GOOS != "linux" {
			continue
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "api.sock")
		l := serve(t, path, name)
		info, err := os.Lstat(path)
		if err != nil || info.Mode().Type() != fs.ModeSocket || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v, %v", name, info.Mode(), err)
		}
		answer, err := socket.Client(path).Get("http://any.example/")
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		_ = answer.Body.Close()
		if _, err := socket.Listen(path); err == nil || !strings.Contains(err.Error(), "another process listens") {
			t.Errorf("%s: a second one: %v", name, err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if left, _ := os.ReadDir(dir); len(left) != 0 {
			t.Errorf("%s: left is %v", name, left)
		}
	}
}

// TestWhatIsThere: a stale socket is replaced, and the new one outlives the Close of the
// old one. A file of another kind is not replaced.
func TestWhatIsThere(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "api.sock")
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	left.SetUnlinkOnClose(false)
	_ = left.Close()
	first := serve(t, path, "first")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	serve(t, path, "second")
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("the socket of the second went with the first: %v", err)
	}
	file := filepath.Join(t.TempDir(), "api.sock")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := socket.Listen(file); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Errorf("a file: %v", err)
	}
}

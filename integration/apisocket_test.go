package integration

import (
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/cache/rest/maintenance"
	"github.com/portolan-mesh/portolan/cache/rest/socket"
	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
)

// private is what a path comes to that only the server's own user may ask.
func (s *server) private(client *http.Client, path string) (code int, body string) {
	s.t.Helper()
	answer, err := client.Get(s.url(path))
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// TestTheSocketOfAServer: whoever reaches the port gets no snapshot, the user of the
// server does, by the command line as it is, also after a kill and at a long path.
func TestTheSocketOfAServer(t *testing.T) {
	t.Parallel()
	dirs := map[string]string{"short": filepath.Join(t.TempDir(), "data")}
	if runtime.GOOS == "linux" {
		dirs["long"] = filepath.Join(t.TempDir(), strings.Repeat("d", 120), "data")
	}
	for name, dir := range dirs {
		s := startServer(t, serverOptions{dataDir: dir})
		path := filepath.Join(dir, "api.sock")
		for range 2 {
			if info, err := os.Lstat(path); err != nil || info.Mode().Perm() != 0o600 {
				t.Fatalf("%s: %v, %v", name, info, err)
			}
			if code, body := s.private(s.client, maintenance.SnapshotPath); code != http.StatusForbidden || !strings.Contains(body, path) {
				t.Errorf("%s: over the port: %d %.200s", name, code, body)
			}
			if code, _ := s.private(socket.Client(path), maintenance.SnapshotPath); code != http.StatusOK {
				t.Errorf("%s: over the socket: %d", name, code)
			}
			file := filepath.Join(t.TempDir(), "mesh.snapshot")
			s.must("", "store", "snapshot", "save", file)
			s.must("", "store", "compact")
			s.must("", "store", "member", "list")
			// One that was killed leaves a socket on which nobody listens.
			s.kill()
			if _, err := os.Lstat(path); err != nil {
				t.Errorf("%s: after a kill: %v", name, err)
			}
			s.start()
		}
		// A second server on the directory takes nothing from the first.
		second := command(t, "", "serve", "--api-address", "127.0.0.1:0", "--xds-address", "127.0.0.1:0", "--data-dir", dir)
		if second.code != 1 || !strings.Contains(second.stderr, "in use") {
			t.Errorf("%s: a second server: exit code %d: %s", name, second.code, second.stderr)
		}
		s.must("", "store", "compact")
		if err := s.process.terminate(t); err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: after its end: %v", name, err)
		}
	}
}

// TestTheSocketBesideAnotherEtcd: there is one where it is asked for.
func TestTheSocketBesideAnotherEtcd(t *testing.T) {
	t.Parallel()
	endpoint := etcdtest.Listen(t)
	path := filepath.Join(t.TempDir(), "api.sock")
	file := filepath.Join(t.TempDir(), "mesh.snapshot")
	with := startServer(t, serverOptions{etcd: endpoint, args: []string{"--api-socket", path}})
	with.must("", "store", "snapshot", "save", file)
	without := startServer(t, serverOptions{etcd: endpoint})
	out := without.try("", "store", "snapshot", "save", "--force", file)
	if out.code != 77 || !strings.Contains(out.stderr, "start it with --api-socket FILE") {
		t.Errorf("without a socket: exit code %d: %s", out.code, out.stderr)
	}
}

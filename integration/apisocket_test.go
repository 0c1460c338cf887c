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

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/maintenance"
	"github.com/portolan-mesh/portolan/discovery/access/socket"
	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
)

// private returns the answer for a path that only the server's own user may read.
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

// TestTheSocketOfAServer: clients of the port get no snapshot. The user of the server gets it
// with the command line's defaults, also after a kill and with a long path.
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
			s.must("", "store", "backup", "--without-keys", file)
			s.must("", "store", "compact")
			s.must("", "store", "member", "list")
			// A killed server leaves a stale socket.
			s.kill()
			if _, err := os.Lstat(path); err != nil {
				t.Errorf("%s: after a kill: %v", name, err)
			}
			s.start()
		}
		// A second server on the directory leaves the first one's socket alone.
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

// TestTheSocketBesideAnotherEtcd: with an external etcd there is a socket if a flag names one.
func TestTheSocketBesideAnotherEtcd(t *testing.T) {
	t.Parallel()
	endpoint := etcdtest.Listen(t)
	path := filepath.Join(t.TempDir(), "api.sock")
	file := filepath.Join(t.TempDir(), "mesh.snapshot")
	with := startServer(t, serverOptions{etcd: endpoint, args: []string{"--api-socket", path}})
	with.must("", "store", "backup", "--without-keys", file)
	without := startServer(t, serverOptions{etcd: endpoint})
	out := without.try("", "store", "backup", "--without-keys", "--force", file)
	if out.code != 77 || !strings.Contains(out.stderr, "start it with --api-socket FILE") {
		t.Errorf("without a socket: exit code %d: %s", out.code, out.stderr)
	}
}

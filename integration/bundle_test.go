package integration

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// bundle takes a debug bundle of the server, which must be complete, and returns its files.
func (s *server) bundle(flags ...string) map[string][]byte {
	s.t.Helper()
	file := filepath.Join(s.t.TempDir(), "bundle.tar.gz")
	s.must("", append([]string{"debug", "bundle", file}, flags...)...)
	packed, err := os.ReadFile(file)
	if err != nil {
		s.t.Fatal(err)
	}
	plain, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		s.t.Fatal(err)
	}
	files := map[string][]byte{}
	for r := tar.NewReader(plain); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			s.t.Fatal(err)
		}
		if files[strings.TrimPrefix(header.Name, "portolan-debug/")], err = io.ReadAll(r); err != nil {
			s.t.Fatal(err)
		}
	}
}

// TestDebugBundleByRights: an administrator gets all of a bundle, a viewer what viewers may see,
// and a stranger nothing. It has what each proxy has acknowledged, and what one has.
func TestDebugBundleByRights(t *testing.T) {
	t.Parallel()
	s := startServer(t, serverOptions{})
	client := xdstest.Dial(t, s.xds, xdstest.ClientOptions{Node: xdstest.NewNode("sidecar", "10.8.0.1", "web", "shop", nil), Variant: protocol.Delta, Follow: true})
	client.Subscribe(xdstest.ClusterType)
	client.Subscribe(xdstest.ListenerType)
	s.awaitSynced(s.apply(ship("shop", "a", "10.0.0.1")), "web")
	expectWords := func(files map[string][]byte, want map[string]string) {
		t.Helper()
		for name, words := range want {
			if !bytes.Contains(files[name], []byte(words)) {
				t.Errorf("%s has no %s: %.500s", name, words, files[name])
			}
		}
	}
	expectWords(s.bundle("--node", "web"), map[string]string{"proxies.json": `"state": "SYNCED"`, "proxy-1-web.json": "outbound|80||a.shop.test"})

	// The first user ends the streams of proxies that prove nothing.
	admin := strings.TrimSpace(s.must("", "user", "create", "root", "--role", "admin"))
	viewer := strings.TrimSpace(s.must("", "user", "create", "anna", "--role", "viewer", "--token", admin))
	expectWords(s.bundle("--token", admin), map[string]string{"audit.json": `"name": "anna"`, "log.txt": "msg=ready", "settings.json": `"xds-address"`})

	file := filepath.Join(t.TempDir(), "viewer.tar.gz")
	out := s.try("", "debug", "bundle", file, "--token", viewer)
	var missing []string
	for line := range strings.Lines(out.stderr) {
		if name, warns := strings.CutPrefix(line, "Warning: "); warns {
			name, _, _ = strings.Cut(name, ":")
			missing = append(missing, name)
		}
	}
	want := []string{"settings.json", "registered-metrics.txt", "log.txt", "goroutines.txt", "heap.pprof"}
	if out.code != 1 || !slices.Equal(missing, want) {
		t.Errorf("a viewer: exit code %d, without %q, and not %q: %s", out.code, missing, want, out.stderr)
	}

	file = filepath.Join(t.TempDir(), "stranger.tar.gz")
	out = s.try("", "debug", "bundle", file, "--token", "put_AGUESSTHATISALMOSTATOKENOFSOMEBODYWHOMAYCOMEIN234567AA")
	if _, err := os.Stat(file); out.code != 77 || !os.IsNotExist(err) {
		t.Errorf("a stranger: exit code %d, %v: %s", out.code, err, out.stderr)
	}
}

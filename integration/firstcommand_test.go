package integration

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestTheFirstCommandWaitsForItsServer: a command that runs right after `portolan serve &`
// succeeds, on a new store and on one that a server has used, and the server logs no error.
func TestTheFirstCommandWaitsForItsServer(t *testing.T) {
	t.Parallel()
	shop := filepath.Join("..", "examples", "quickstart", "shop.yaml")
	for _, args := range [][]string{
		{"apply", "-f", shop}, {"apply", "-f", shop, "--dry-run=server"},
		{"get", "vs", "-A"}, {"analyze"}, {"proxy", "status"}, {"audit"}, {"export"},
	} {
		s := &server{t: t, o: serverOptions{dataDir: filepath.Join(t.TempDir(), "data")}, api: local(freePort(t)), xds: local(freePort(t)), client: clientOf(t)}
		for _, store := range []string{"new", "used"} {
			s.launch()
			if out := s.try("", args...); out.code != 0 {
				t.Errorf("%v on a %s store: exit code %d\n%s%s", args, store, out.code, out.stdout, out.stderr)
			}
			s.awaitReady()
			if err := s.process.terminate(t); err != nil {
				t.Errorf("%v: the server ended with %v", args, err)
			}
			for line := range strings.Lines(s.process.output()) {
				// etcd says so of a read that the end of the server cut off.
				if strings.Contains(line, "level=ERROR") && !strings.Contains(line, "context canceled") {
					t.Errorf("%v on a %s store: the server logged %s", args, store, line)
				}
			}
		}
	}
}

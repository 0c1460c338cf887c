package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/storage/longtest"
)

// bulk is a ServiceEntry with a number of endpoints.
func bulk(i, endpoints int) string {
	var b strings.Builder
	fmt.Fprintf(&b, `apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata:
  name: service-%05d
  namespace: bulk
  labels: {app: service-%05d, team: team-%02d}
spec:
  hosts: [service-%05d.bulk.test]
  location: MESH_INTERNAL
  resolution: STATIC
  ports:
  - {number: 8080, name: http, protocol: HTTP}
`, i, i, i%50, i)
	if endpoints > 0 {
		b.WriteString("  endpoints:\n")
	}
	for n := range endpoints {
		fmt.Fprintf(&b, "  - {address: 10.%d.%d.%d, labels: {version: v%d, zone: zone-%d, rack: rack-%02d}}\n", i/250, i%250, n+1, n%2+1, n%3, n)
	}
	return b.String()
}

// bulkDirectory writes n objects into files of a hundred, and returns the size of the text.
func bulkDirectory(t *testing.T, n, endpoints int) (dir string, size int) {
	t.Helper()
	dir = t.TempDir()
	for first := 0; first < n; first += 100 {
		var documents []string
		for i := first; i < min(first+100, n); i++ {
			documents = append(documents, bulk(i, endpoints))
		}
		text := strings.Join(documents, "---\n")
		size += len(text)
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%05d.yaml", first)), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir, size
}

// TestApplyTenThousand: a directory of 10,000 objects and 12 MiB is one revision of the
// embedded store. A directory that is too large for one revision is refused as a whole.
func TestApplyTenThousand(t *testing.T) {
	s := startServer(t, serverOptions{})
	dir, size := bulkDirectory(t, 10_000, 13)
	if size < 12<<20 {
		t.Fatalf("the directory has %d bytes", size)
	}
	begin := time.Now()
	lines := strings.Split(strings.TrimSpace(s.must("", "apply", "--request-timeout", "5m", "-f", dir)), "\n")
	t.Logf("%d objects, %.1f MiB of YAML: applied in %.1f s", len(lines), float64(size)/(1<<20), time.Since(begin).Seconds())
	if len(lines) != 10_000 {
		t.Errorf("%d objects were applied", len(lines))
	}
	revision, err := strconv.ParseInt(lines[0][strings.LastIndexByte(lines[0], ' ')+1:], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	end := fmt.Sprintf("created  rev %d", revision) // one revision for all
	for _, line := range lines {
		if !strings.HasSuffix(line, end) {
			t.Fatalf("%q does not end in %q", line, end)
		}
	}
	begin = time.Now()
	if out := s.must("", "diff", "-f", dir); out != "" {
		t.Errorf("differences after the apply: %.200s", out)
	}
	t.Logf("diff without differences in %.1f s", time.Since(begin).Seconds())

	over, _ := bulkDirectory(t, 30_001, 0)
	out := s.try("", "apply", "-f", over)
	expectRefusal(t, out, 65, "nothing was applied", "30001", "60000", "--chunks N")
	records := revisions(s.must("", "audit"))
	expectEqual(t, "the newest record after the refused apply", records[0], revision)
}

// TestSoakApplyInParts: a directory is applied in parts if the command asks for it. The long
// form has more objects than one part may have.
func TestSoakApplyInParts(t *testing.T) {
	all, part := 1_001, 600
	if longtest.Soak(t) > 0 {
		all, part = 30_001, 16_000
	}
	s := startServer(t, serverOptions{})
	dir, _ := bulkDirectory(t, all, 0)
	records := revisions(s.must("", "audit"))
	parts := s.must("", "apply", "-f", dir, "--chunks", strconv.Itoa(part))
	made := revisions(s.must("", "audit"))
	expectEqual(t, "records before the parts", made[2:], records)
	for _, want := range []string{
		fmt.Sprintf("part 1 of 2: objects 1-%d: rev %s\n", part, made[1]),
		fmt.Sprintf("part 2 of 2: objects %d-%d: rev %s\n", part+1, all, made[0]),
	} {
		if !strings.Contains(parts, want) {
			t.Errorf("the output lacks %q", want)
		}
	}
}

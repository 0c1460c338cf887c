package file_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// nobody is a user who may read only what everybody may.
const nobody = 65534

// TestNotAllowed removes the read permission (chmod 000) from a file, a folder and the
// whole directory. Their content stays until they can be read again. Root may read
// everything, so for root the test runs again as another user.
func TestNotAllowed(t *testing.T) {
	t.Parallel()
	if os.Geteuid() == 0 {
		asNobody(t)
		return
	}
	for name, path := range map[string]string{"a file": "deep/x.yaml", "a folder": "deep", "the directory": "."} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := follow(t, t.TempDir())
			s.put("deep/x.yaml", entry(t, "x", 1))
			s.put("y.yaml", entry(t, "y", 1))
			s.awaitRound("x", "1")
			s.awaitRound("y", "1")
			from := s.Snapshot().Revision()
			at := s.path(path)
			info, err := os.Stat(at)
			must(t, err)
			t.Cleanup(func() { _ = os.Chmod(at, info.Mode()) }) // otherwise the test could not remove it
			must(t, os.Chmod(at, 0))
			s.await("it says so", func() bool {
				if err := s.Degraded(); err != nil && strings.Contains(err.Error(), "permission denied") {
					return true
				}
				for _, p := range s.Problems() {
					if strings.Contains(p.Message, "permission denied") && p.Serving {
						return true
					}
				}
				return false
			})
			if name == "a file" { // the others can be read
				s.put("y.yaml", entry(t, "y", 2))
				s.awaitRound("y", "2")
			}
			must(t, os.Chmod(at, info.Mode()))
			s.awaitSound()
			s.put("deep/x.yaml", entry(t, "x", 3))
			s.awaitRound("x", "3")
			s.neverWithout(from, "x", "y")
		})
	}
}

// asNobody runs a test in a process of nobody.
func asNobody(t *testing.T) {
	t.Helper()
	home := t.TempDir()
	must(t, os.Chmod(filepath.Dir(home), 0o755)) // the directory also belongs to the test
	must(t, os.Chown(home, nobody, nobody))
	// So nobody can run a program whose directory only root may enter.
	c := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.v", "-test.run", "^"+t.Name()+"$")
	c.Dir, c.Env = home, append(os.Environ(), "TMPDIR="+home)
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := c.CombinedOutput()
	if err != nil || strings.Count(string(out), "--- PASS: "+t.Name()) != 4 {
		t.Fatalf("as nobody: %v\n%s", err, out)
	}
}

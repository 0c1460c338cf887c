package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/portolan-mesh/portolan/integration/processtest"
)

// process is a program that a scenario started. It ends at the latest with the test, or with
// the test's own process.
type process struct {
	*processtest.Process
	name string
}

// start runs a program; its output goes to a file that stays if the test fails.
func start(t testing.TB, name, path string, args ...string) *process {
	t.Helper()
	return &process{processtest.Start(t, processtest.Options{Name: name, Path: path, Args: args}), name}
}

// kill ends the process at once.
func (p *process) kill() { p.Kill() }

// terminate asks the process to end, and returns its exit error.
func (p *process) terminate(t testing.TB) error {
	t.Helper()
	return p.Terminate(t, patience)
}

func (p *process) running() bool { return p.Running() }

func (p *process) pid() int { return p.PID() }

// output returns all that the process printed.
func (p *process) output() string { return p.Output() }

// tail returns the end of what the process printed.
func (p *process) tail() string { return p.Tail() }

// freePort returns a port of 127.0.0.1 that nothing listens on.
func freePort(t testing.TB) int {
	t.Helper()
	return processtest.FreePort(t)
}

func local(port int) string { return processtest.Local(port) }

// write writes a document into a file of the test.
func write(t testing.TB, name, document string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(document), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// expectEqual compares the texts of two values.
func expectEqual(t testing.TB, what string, got, want any) {
	t.Helper()
	if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
		t.Errorf("%s: got %s, want %s", what, g, w)
	}
}

package integration

import (
	"os"
	"path/filepath"
	"testing"
)

// builtTool returns the absolute path of a program that a target of the Makefile builds. Where it is
// not there, the test is skipped, but fails in CI.
func builtTool(t testing.TB, name, path, target string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err == nil {
		_, err = os.Stat(path)
	}
	switch {
	case err == nil:
	case os.Getenv("CI") == "true":
		t.Fatalf("there is no %s (%v): run make %s", name, err, target)
	default:
		t.Skipf("SKIPPED, AND NOTHING WAS TESTED: there is no %s (%v): run make %s", name, err, target)
	}
	return path
}

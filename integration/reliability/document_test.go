package reliability_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// row matches a line of the table of promises, and test a test that it names.
var (
	row  = regexp.MustCompile(`(?m)^\| ([A-Z>=-]+) \|.*\|$`)
	test = regexp.MustCompile("`([a-z/]+)\\.(Test[A-Za-z0-9]+)`")
)

// TestThePromisesHaveTheirTests: docs/reliability.md lists every invariant, and the tests that
// it names exist.
func TestThePromisesHaveTheirTests(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/reliability.md")
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{}
	for _, line := range row.FindAllStringSubmatch(string(text), -1) {
		tests := test.FindAllStringSubmatch(line[0], -1)
		named[line[1]] = len(tests) > 0
		for _, found := range tests {
			if !declares(t, found[1], found[2]) {
				t.Errorf("%s: there is no %s in %s", line[1], found[2], found[1])
			}
		}
	}
	for _, name := range []string{
		"CAS-LIN", "AMBIG", "REV-MONO", "WATCH", "RELIST-EQ", "CONVERGE", "CACHE>=EVENT", "RYW", "FRESH", "DURABLE", "STATIC-STAB",
		"NO-POISON", "ONE-LEADER", "TXN-ALL", "NOOP", "BOUNDED", "SHUTDOWN", "CLOCK", "UPGRADE", "RESTORE",
	} {
		if !named[name] {
			t.Errorf("%s has no test in the table", name)
		}
	}
}

// declares reports whether a package has a test.
func declares(t *testing.T, pkg, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("../..", pkg, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(source), "\nfunc "+name+"(t *testing.T)") {
			return true
		}
	}
	return false
}

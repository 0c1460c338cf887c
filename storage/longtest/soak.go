// Package longtest tells a test that has a short form and a long one which of them to
// run. `make test` runs the short ones. `make race` runs many histories where a test
// counts them, and `make soak` runs the tests that take any time they are given.
package longtest

import (
	"os"
	"strings"
	"testing"
	"time"
)

// Variable is the environment variable that asks for long forms: how long each takes,
// such as 20m.
const Variable = "PORTOLAN_SOAK"

// Soak returns how long the long form of a test takes, and 0 for the short form. The
// name of the test begins with TestSoak, by which `make soak` finds it, or with Fuzz.
func Soak(t testing.TB) time.Duration {
	t.Helper()
	if !strings.HasPrefix(t.Name(), "TestSoak") && !strings.HasPrefix(t.Name(), "Fuzz") {
		t.Fatalf("`make soak` does not find %s: its name begins with neither TestSoak nor Fuzz", t.Name())
	}
	value := os.Getenv(Variable)
	if value == "" {
		return 0
	}
	d, err := time.ParseDuration(value)
	if err != nil || d <= 0 {
		t.Fatalf("%s=%q is no duration above 0, such as 20m", Variable, value)
	}
	return d
}

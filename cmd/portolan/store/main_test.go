package store

import (
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan/clitest"
)

func TestMain(m *testing.M) { clitest.RunTests(m) }

var line = clitest.CommandLine{Commands: Commands}

func do(t *testing.T, stdin string, args ...string) clitest.Outcome {
	t.Helper()
	return line.Do(t, stdin, args...)
}

package main

import (
	"os"
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan/clitest"
)

// TestMain also runs the store process that serve starts: this binary with the arguments
// "store run".
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "store" {
		main()
	}
	clitest.RunTests(m)
}

var line = clitest.CommandLine(whole())

func do(t *testing.T, stdin string, args ...string) clitest.Outcome {
	t.Helper()
	return line.Do(t, stdin, args...)
}

func startAPI(t *testing.T) clitest.API {
	t.Helper()
	return line.StartAPI(t)
}

package access

import (
	"testing"

	"github.com/spf13/cobra"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/clitest"
	"github.com/portolan-mesh/portolan/cmd/portolan/objects"
)

func TestMain(m *testing.M) { clitest.RunTests(m) }

var line = clitest.CommandLine{Commands: func(env *cli.Environment) []*cobra.Command {
	return append(Commands(env), objects.Commands(env)...)
}}

func do(t *testing.T, stdin string, args ...string) clitest.Outcome {
	t.Helper()
	return line.Do(t, stdin, args...)
}

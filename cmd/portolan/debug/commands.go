package debug

import (
	"github.com/spf13/cobra"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
)

// environment has what the commands of this group share, besides what all commands do.
type environment struct{ *cli.Environment }

// Commands returns the commands about faults of a server.
func Commands(line *cli.Environment) []*cobra.Command {
	c := &cobra.Command{Use: "debug", Short: "Collect what helps to find a fault of a server"}
	c.AddCommand(newBundleCommand(&environment{line}))
	return []*cobra.Command{c}
}

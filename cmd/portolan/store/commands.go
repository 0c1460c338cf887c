package store

import (
	"github.com/spf13/cobra"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
)

// environment has what the commands of this group share, besides what all commands do.
type environment struct{ *cli.Environment }

// Commands returns the commands about the store, the versions and the logs of servers.
func Commands(line *cli.Environment) []*cobra.Command {
	env := &environment{line}
	return []*cobra.Command{newStoreCommand(env), newUpgradeCommand(env), newServerCommand(env)}
}

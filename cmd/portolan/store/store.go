package store

import (
	"github.com/spf13/cobra"

	"github.com/portolan-mesh/portolan/cmd/portolan/serve/command"
)

// newStoreCommand returns the command with the subcommands for the store. serve uses "run" to
// start the embedded member; people have no use for it.
func newStoreCommand(env *environment) *cobra.Command {
	c := &cobra.Command{Use: "store", Short: "See to the store of a server"}
	c.AddCommand(
		newStoreStatusCommand(env), newStoreBackupCommand(env), newStoreInspectCommand(env), newStoreRestoreCommand(env),
		newStoreCompactCommand(env), newStoreDefragCommand(env), newStoreQuarantineCommand(env),
		newStoreMemberCommand(env), command.NewStoreRun(env.Stderr),
	)
	return c
}

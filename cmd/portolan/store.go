package main

import "github.com/spf13/cobra"

// newStoreCommand has the commands of the store. "run" is how serve starts the
// embedded member; it is of no use to people.
func newStoreCommand(env *environment) *cobra.Command {
	c := &cobra.Command{Use: "store", Short: "See to the store of a server"}
	c.AddCommand(
		newStoreStatusCommand(env), newStoreSnapshotCommand(env),
		newStoreCompactCommand(env), newStoreDefragCommand(env), newStoreQuarantineCommand(env),
		newStoreMemberCommand(env), newStoreRunCommand(env),
	)
	return c
}

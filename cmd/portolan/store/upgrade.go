package store

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/maintenance"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/maintenance/remote"
	"github.com/portolan-mesh/portolan/storage/etcd"
)

func newUpgradeCommand(env *environment) *cobra.Command {
	c := &cobra.Command{Use: "upgrade", Short: "See to going from one version to another"}
	c.AddCommand(newUpgradeCheckCommand(env))
	return c
}

func newUpgradeCheckCommand(env *environment) *cobra.Command {
	output := ""
	c := &cobra.Command{
		Use:   "check",
		Short: "See whether a server, its store and this program fit together",
		Long: `See whether a server, its store and this program fit together. Everything in the
store is read for it. The exit code is 1 where there is something to see to.

A store has a storage format: the highest of any server that has written to it. A
server never writes to a store above its own format, so that it cannot damage what
it does not understand; it goes on serving. Run this with the new version before
an upgrade, and again after it.

The agents of connected machines go with servers of their minor version and of the next.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return env.Call(c.Context(), func(ctx context.Context, api *client.Client) error {
				format, err := remote.Server{Client: api}.StoreFormat(ctx)
				if err != nil {
					return err
				}
				agents, err := env.agents(ctx)
				if err != nil {
					return err
				}
				format.Problems = slices.Concat(format.Problems, problemsOfThisBinary(format), problemsOfAgents(format.Server.Version, agents))
				if output != "" {
					err = cli.WriteDocument(env.Stdout, output, format)
				} else {
					err = writeFormat(env.Stdout, env.Version, format, agents)
				}
				if err == nil && len(format.Problems) > 0 {
					err = problemsFound(len(format.Problems))
				}
				return err
			})
		},
	}
	cli.RegisterOutput(c, &output, "", "json", "yaml")
	return c
}

// problemsOfThisBinary returns the problems that this binary would have as a server of the same
// store, if it differs from the running server.
func problemsOfThisBinary(f *maintenance.Format) (problems []string) {
	if f.Server.StorageFormat == etcd.StorageFormat {
		return nil
	}
	own := etcd.Format{StorageFormat: f.Store.StorageFormat, MinReader: f.Store.MinReader}
	if own.Writable() != nil || own.Readable() != nil {
		problems = append(problems, fmt.Sprintf("this program has storage format %d: a server of its version could not write to this store", etcd.StorageFormat))
	}
	if f.Server.StorageFormat < etcd.StorageFormat {
		problems = append(problems, fmt.Sprintf(
			"this program has storage format %d: once a server of its version writes to this store, servers of format %d only read it: upgrade all of them",
			etcd.StorageFormat, f.Server.StorageFormat))
	}
	return problems
}

func writeFormat(out io.Writer, version string, f *maintenance.Format, agents map[string]int) error {
	store := "nobody has written to it yet"
	if f.Store.StorageFormat > 0 {
		store = fmt.Sprintf("storage format %d, for readers of %d and above", f.Store.StorageFormat, f.Store.MinReader)
	}
	err := cli.WriteTable(out, [][]string{
		{"this program", fmt.Sprintf("%s, storage format %d", version, etcd.StorageFormat)},
		{"server", fmt.Sprintf("%s, storage format %d", f.Server.Version, f.Server.StorageFormat)},
		{"store", store},
		{"objects", fmt.Sprintf("%d, %d with fields unknown to the server", f.Store.Objects, f.Store.UnknownFields)},
		{"agents", describeAgents(agents)},
		{"other keys", fmt.Sprintf("%d of kinds unknown to the server, %d unreadable", f.Store.UnknownKinds, f.Store.Unreadable)},
	})
	if err != nil {
		return err
	}
	for _, p := range f.Problems {
		fmt.Fprintf(out, "! %s\n", p)
	}
	if len(f.Problems) == 0 {
		fmt.Fprintln(out, "All is well.")
	}
	return nil
}

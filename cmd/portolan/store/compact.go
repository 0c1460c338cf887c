package store

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/maintenance/remote"
)

func newStoreCompactCommand(env *environment) *cobra.Command {
	var revision int64
	c := &cobra.Command{
		Use:   "compact",
		Short: "Drop old revisions of the embedded store",
		Long: `Drop all revisions of the embedded store that are older than --revision, or than
the newest. Servers do it by themselves by --store-retention. The history of
objects (portolan history) stays; what goes is etcd's own. The space is free for
reuse then; portolan store defrag gives it back to the file system.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if revision < 0 {
				return exit.With(exit.Usage, fmt.Errorf("--revision %d: give one that the store has", revision))
			}
			return env.Call(c.Context(), func(ctx context.Context, api *client.Client) error {
				done, err := remote.Server{Client: api}.CompactStore(ctx, revision)
				if err != nil {
					return err
				}
				fmt.Fprintf(env.Stdout, "compacted to revision %d: %s in use, %s before\n", done.Revision, cli.FormatMiB(done.AfterBytes), cli.FormatMiB(done.BeforeBytes))
				return nil
			})
		},
	}
	c.Flags().Int64Var(&revision, "revision", 0, "the oldest revision to keep (default the newest)")
	return c
}

func newStoreDefragCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use:   "defrag",
		Short: "Give space that the embedded store does not use back to the file system",
		Long: `Give space that the embedded store does not use back to the file system. Servers
do it by themselves when there is much of it. The member answers nobody meanwhile,
about 1 second for 1 GiB of data; proxies are served from memory. Of a store of
several members it is for that of the server which is asked.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return env.Call(c.Context(), func(ctx context.Context, api *client.Client) error {
				done, err := remote.Server{Client: api}.DefragmentStore(ctx)
				if err != nil {
					return err
				}
				fmt.Fprintf(env.Stdout, "defragmented in %s: %s, %s before\n",
					time.Duration(done.Seconds*float64(time.Second)).Round(time.Millisecond), cli.FormatMiB(done.AfterBytes), cli.FormatMiB(done.BeforeBytes))
				return nil
			})
		},
	}
}

package store

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/maintenance"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/maintenance/remote"
)

func newStoreQuarantineCommand(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "quarantine",
		Short: "See and delete what is in the store and cannot be served",
		Long: `See and delete what is in the store, where configuration belongs, and cannot be
served: keys of kinds that the server does not know, keys of no object at all,
and values that cannot be read. They disturb nothing else; of a value that was
damaged the last good object is served as long as the server runs.

An object of a known kind is mended by portolan apply, too, or deleted by
portolan delete. Keys of unknown kinds may be those of a newer server: see
portolan upgrade check before you delete them.`,
	}
	c.AddCommand(newQuarantineListCommand(env), newQuarantineDeleteCommand(env))
	return c
}

func newQuarantineListCommand(env *environment) *cobra.Command {
	output := ""
	c := &cobra.Command{
		Use:   "list",
		Short: "List what cannot be served, and why",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return env.Call(c.Context(), func(ctx context.Context, api *client.Client) error {
				list, err := remote.Server{Client: api}.Quarantine(ctx)
				if err != nil {
					return err
				}
				if output != "" {
					return cli.WriteDocument(env.Stdout, output, list)
				}
				return env.printQuarantine(list)
			})
		},
	}
	cli.RegisterOutput(c, &output, "", "json", "yaml")
	return c
}

func (e *environment) printQuarantine(list *maintenance.QuarantineList) error {
	if len(list.Items) == 0 {
		_, err := fmt.Fprintln(e.Stderr, "The quarantine is empty.")
		return err
	}
	rows := [][]string{{"KEY", "REVISION", "BYTES", "AGE", "SERVED", "REASON"}}
	for _, item := range list.Items {
		served := "no"
		if item.Serving {
			served = "last good"
		}
		rows = append(rows, []string{item.Key, fmt.Sprint(item.Revision), fmt.Sprint(item.Bytes), cli.Age(e.Now(), item.Since), served, item.Reason})
	}
	return cli.WriteTable(e.Stdout, rows)
}

func newQuarantineDeleteCommand(env *environment) *cobra.Command {
	var revision int64
	c := &cobra.Command{
		Use:   "delete KEY",
		Short: "Delete a key that cannot be served",
		Long: `Delete a key that cannot be served, as portolan store quarantine list shows it.
The history keeps a record of it. The key must have the revision of --revision, or
else that which it has in the quarantine now; one that was changed meanwhile stays.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if revision < 0 {
				return exit.With(exit.Usage, fmt.Errorf("--revision %d: give the one that the list shows", revision))
			}
			return env.Call(c.Context(), func(ctx context.Context, api *client.Client) error {
				if revision == 0 {
					item, err := quarantinedItem(ctx, api, args[0])
					if err != nil {
						return err
					}
					revision = item.Revision
				}
				done, err := remote.Server{Client: api}.Discard(ctx, args[0], revision)
				if err != nil {
					return err
				}
				_, err = fmt.Fprintf(env.Stdout, "%s deleted at revision %s\n", done.Key, done.Revision)
				return err
			})
		},
	}
	c.Flags().Int64Var(&revision, "revision", 0, "the revision that the key must have (default that in the quarantine)")
	return c
}

func quarantinedItem(ctx context.Context, api *client.Client, key string) (maintenance.Quarantined, error) {
	list, err := remote.Server{Client: api}.Quarantine(ctx)
	if err != nil {
		return maintenance.Quarantined{}, err
	}
	for _, item := range list.Items {
		if item.Key == key {
			return item, nil
		}
	}
	return maintenance.Quarantined{}, exit.With(exit.Data, fmt.Errorf("%q is not in quarantine: see portolan store quarantine list", key))
}

package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/maintenance"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/maintenance/remote"
	"github.com/portolan-mesh/portolan/cmd/portolan/serve/loglevel"
)

// newServerCommand returns the command with the subcommands for one running server.
func newServerCommand(env *environment) *cobra.Command {
	c := &cobra.Command{Use: "server", Short: "See to a running server"}
	c.AddCommand(newLogLevelCommand(env))
	return c
}

func newLogLevelCommand(env *environment) *cobra.Command {
	output, limit := "", time.Duration(0)
	c := &cobra.Command{
		Use:   "log-level [LEVEL] [COMPONENT=LEVEL]...",
		Short: "See and change how much a running server logs",
		Long: `See and change how much a running server logs: debug, info, warn or error, for all
components or for those that are named. Without arguments all levels are shown. What
is not named stays. With --for the levels of before return by themselves; without it
the new ones stay until the server ends: --log-level of serve says how it starts.

The levels are those of the server that is called. Name the one you mean by --server
where several share a store.`,
		RunE: func(c *cobra.Command, args []string) error {
			switch given := c.Flags().Changed("for"); {
			case given && len(args) == 0:
				return exit.With(exit.Usage, errors.New("--for: name what to change, such as xds=debug"))
			case given && limit <= 0:
				return exit.With(exit.Usage, fmt.Errorf("--for %s: give a time above 0", limit))
			}
			return env.Call(c.Context(), func(ctx context.Context, api *client.Client) error {
				levels, err := changeLogLevels(ctx, remote.Server{Client: api}, args, limit)
				if err != nil {
					return err
				}
				if output != "" {
					return cli.WriteDocument(env.Stdout, output, levels)
				}
				return writeLogLevels(env.Stdout, levels, len(args) > 0)
			})
		},
		ValidArgsFunction: completeLogLevels,
	}
	c.Flags().DurationVar(&limit, "for", 0, "after which time the levels of before return (default never)")
	cli.RegisterOutput(c, &output, "", "json", "yaml")
	return c
}

// completeLogLevels offers levels for all components, and for each.
func completeLogLevels(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	out := slices.Clone(loglevel.Words)
	for _, c := range loglevel.Components() {
		for _, word := range loglevel.Words {
			out = append(out, string(c)+"="+word)
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

func changeLogLevels(ctx context.Context, server remote.Server, changes []string, limit time.Duration) (*maintenance.LogLevels, error) {
	if len(changes) == 0 {
		return server.LogLevels(ctx)
	}
	in := maintenance.LogLevelChange{Levels: strings.Join(changes, ",")}
	if limit > 0 {
		in.For = limit.String()
	}
	return server.SetLogLevels(ctx, in)
}

// writeLogLevels prints levels for people, with those of before after a change.
func writeLogLevels(out io.Writer, levels *maintenance.LogLevels, changed bool) error {
	rows := [][]string{{"COMPONENT", "LEVEL"}}
	if changed {
		rows[0] = append(rows[0], "WAS")
	}
	rows[0] = append(rows[0], "UNTIL", "THEN")
	for _, one := range levels.Items {
		row := []string{one.Component, one.Level}
		if changed {
			row = append(row, one.Was)
		}
		until := ""
		if !one.Until.IsZero() {
			until = one.Until.Format(time.RFC3339)
		}
		rows = append(rows, append(row, until, one.Then))
	}
	return cli.WriteTable(out, rows)
}

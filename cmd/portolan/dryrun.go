package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/portolan-mesh/portolan/cache/rest/batch"
	"github.com/portolan-mesh/portolan/cache/rest/client"
	"github.com/portolan-mesh/portolan/storage/config"
)

// dryRun says whether a change is only tried, and by whom.
type dryRun string

const (
	dryRunNone   dryRun = "none"
	dryRunClient dryRun = "client"
	dryRunServer dryRun = "server"
)

var dryRuns = []string{string(dryRunNone), string(dryRunClient), string(dryRunServer)}

func (d *dryRun) register(c *cobra.Command) {
	c.Flags().StringVar((*string)(d), "dry-run", string(dryRunNone),
		"change nothing: client reads and validates, without a server; server says what would become of each object")
	_ = c.RegisterFlagCompletionFunc("dry-run", cobra.FixedCompletions(dryRuns, cobra.ShellCompDirectiveNoFileComp))
}

func (d dryRun) check() error { return oneOf("--dry-run", string(d), dryRuns...) }

// send has the server do a batch, or try it.
func (d dryRun) send(ctx context.Context, c *client.Client, b batch.Batch) (*batch.Result, error) {
	if d == dryRunServer {
		return c.Try(ctx, b)
	}
	return c.Apply(ctx, b)
}

// row is the line about an object. What is only tried has no revision.
func (d dryRun) row(document config.Document, outcome string, more ...string) []string {
	key := document.Config.Key().String()
	if d != dryRunNone {
		return []string{key, outcome + " (dry run)"}
	}
	return append([]string{key, outcome}, more...)
}

package objects

import (
	"cmp"
	"errors"

	"github.com/spf13/cobra"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/xds/admin/effect"
)

// The values of --dry-run: whether to make a change, or only try it on the client or the
// server.
const (
	dryRunNone   = "none"
	dryRunClient = "client"
	dryRunServer = "server"
)

var dryRuns = []string{dryRunNone, dryRunClient, dryRunServer}

// The values of --xds: how much a dry run shows of proxies' resources.
const (
	xdsNames = "names"
	xdsDiff  = "diff"
)

var xdsShown = []string{xdsNames, xdsDiff}

// dryRun says whether a change is only tried, and what to show of it.
type dryRun struct{ mode, xds string }

func (d *dryRun) register(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&d.mode, "dry-run", dryRunNone,
		"change nothing: client reads and validates, without a server; server shows what would become of each object, and which proxies are concerned")
	_ = c.RegisterFlagCompletionFunc("dry-run", cobra.FixedCompletions(dryRuns, cobra.ShellCompDirectiveNoFileComp))
	f.StringVar(&d.xds, "xds", "", "with --dry-run=server, show the resources of proxies that would change: their names, or with --xds=diff how they differ too")
	f.Lookup("xds").NoOptDefVal = xdsNames
	_ = c.RegisterFlagCompletionFunc("xds", cobra.FixedCompletions(xdsShown, cobra.ShellCompDirectiveNoFileComp))
}

func (d dryRun) check() error {
	err := cli.OneOf("--dry-run", d.mode, dryRuns...)
	if d.xds == "" {
		return err
	}
	if err == nil && d.mode != dryRunServer {
		err = exit.With(exit.Usage, errors.New("--xds shows what a dry run of the server finds: add --dry-run=server"))
	}
	return cmp.Or(err, cli.OneOf("--xds", d.xds, xdsShown...))
}

// preview returns how much the server has to foresee.
func (d dryRun) preview() effect.Preview {
	switch d.xds {
	case xdsNames:
		return effect.PreviewResources
	case xdsDiff:
		return effect.PreviewBodies
	}
	return effect.PreviewProxies
}

// row returns the line for an object. A change that is only tried has no revision.
func (d dryRun) row(document config.Document, outcome string, more ...string) []string {
	key := document.Config.Key().String()
	if d.mode != dryRunNone {
		return []string{key, outcome + " (dry run)"}
	}
	return append([]string{key, outcome}, more...)
}

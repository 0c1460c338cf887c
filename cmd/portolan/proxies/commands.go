package proxies

import (
	"github.com/spf13/cobra"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
)

// environment has what the commands of this group share, besides what all commands do.
type environment struct{ *cli.Environment }

// Commands returns the commands about what proxies have, and where it is from.
func Commands(line *cli.Environment) []*cobra.Command {
	env := &environment{line}
	return []*cobra.Command{newProxyCommand(env), newExplainCommand(env), newAuthzCommand(env), newDNSCommand(env), newSourceCommand(env)}
}

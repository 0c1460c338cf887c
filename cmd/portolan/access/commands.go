package access

import (
	"github.com/spf13/cobra"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
)

// environment has what the commands of this group share, besides what all commands do.
type environment struct{ *cli.Environment }

// Commands returns the commands about users, their contexts and rights, and about machines and
// their certificates.
func Commands(line *cli.Environment) []*cobra.Command {
	env := &environment{line}
	return []*cobra.Command{
		newAuthCommand(env), newLoginCommand(env), newLogoutCommand(env), newConfigCommand(env), newUserCommand(env),
		newTokenCommand(env), newMachineCommand(env), newCertificateCommand(env), newCACommand(env), newBootstrapCommand(env),
	}
}

package cli

import (
	"fmt"
	"strings"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/call"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// hiddenFlags returns the global flags that a command replaces by its own.
func hiddenFlags(c *cobra.Command) (out []string) {
	c.Root().PersistentFlags().VisitAll(func(f *pflag.Flag) {
		if c.Flags().Lookup(f.Name) != f {
			out = append(out, f.Name)
		}
	})
	return out
}

// explainCredentials adds to an error about the user's credentials, or an untrusted server,
// where the command gets them from. It matters for a command whose own flags hide the global
// ones.
func (e *Environment) explainCredentials(err error) error {
	if apierrors.IsUnauthorized(err) {
		err = e.Credentials.explain(err)
	}
	if e.Files.CA != "" {
		err = call.ExplainUntrusted(err, e.Files.CA, "name the roots of the mesh with --ca or PORTOLAN_CA; portolan ca root prints them where a server is trusted, such as on its own machine")
	}
	if len(e.hidden) == 0 || !apierrors.IsUnauthorized(err) && !call.Untrusted(err) {
		return err
	}
	var flags, variables []string
	for _, name := range e.hidden {
		flags, variables = append(flags, "--"+name), append(variables, Variable(name))
	}
	return fmt.Errorf("%w (%s of %s are not about the server and you: give these by %s, or by a context)",
		err, strings.Join(flags, ", "), "portolan "+e.command, strings.Join(variables, ", "))
}

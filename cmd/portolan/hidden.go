package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/portolan-mesh/portolan/cache/rest/client"
)

// hiddenFlags are the global flags that a command has flags of its own in place of.
func hiddenFlags(c *cobra.Command) (out []string) {
	c.Root().PersistentFlags().VisitAll(func(f *pflag.Flag) {
		if c.Flags().Lookup(f.Name) != f {
			out = append(out, f.Name)
		}
	})
	return out
}

// explainCredentials says where a command takes the credentials of its user from, where its
// flags are about something else and the server does not let the user in, or is not trusted.
func (e *environment) explainCredentials(err error) error {
	if apierrors.IsUnauthorized(err) {
		err = e.credentials.explain(err)
	}
	if len(e.hidden) == 0 || !apierrors.IsUnauthorized(err) && !client.Untrusted(err) {
		return err
	}
	var flags, variables []string
	for _, name := range e.hidden {
		flags, variables = append(flags, "--"+name), append(variables, variable(name))
	}
	return fmt.Errorf("%w (%s of %s are not about the server and you: give these by %s, or by a context)",
		err, strings.Join(flags, ", "), "portolan "+e.command, strings.Join(variables, ", "))
}

package cli

import (
	"context"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
)

// completeFlags completes the values of flags that many commands have: namespaces and
// revisions.
func completeFlags(env *Environment, c *cobra.Command, revisions func(*Environment) cobra.CompletionFunc) {
	c.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		switch {
		case f.Name == "namespace":
			_ = c.RegisterFlagCompletionFunc(f.Name, completeNamespaces(env))
		case revisions != nil && f.Value.Type() == "int64" && slices.Contains([]string{"revision", "min-revision", "to-revision", "from", "to"}, f.Name):
			_ = c.RegisterFlagCompletionFunc(f.Name, revisions(env))
		}
	})
	for _, sub := range c.Commands() {
		completeFlags(env, sub, revisions)
	}
}

func completeNamespaces(env *Environment) cobra.CompletionFunc {
	return func(c *cobra.Command, _ []string, _ string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
		env.Offer(c.Context(), func(ctx context.Context, c *client.Client) (err error) {
			names, err = c.Namespaces(ctx)
			return err
		})
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

package cli

import (
	"cmp"
	"context"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/xds/admin"
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

// CompleteHosts offers the hosts of the mesh, for one argument or a flag.
func CompleteHosts(env *Environment) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, _ string) (out []cobra.Completion, _ cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		env.Offer(c.Context(), func(ctx context.Context, c *client.Client) error {
			var list admin.ServiceNames
			if err := c.JSON(ctx, admin.ServicesPath, &list); err != nil {
				return err
			}
			for _, s := range list.Items {
				out = append(out, cobra.CompletionWithDesc(s.Hostname, "of namespace "+s.Namespace))
			}
			return nil
		})
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}

// CompleteNames offers the names of the objects of a kind, for up to so many arguments: those in the
// namespace of -n or of the environment, and of all for a command without -n.
func CompleteNames(env *Environment, of config.GroupVersionKind, most int) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, _ string) (out []cobra.Completion, _ cobra.ShellCompDirective) {
		if len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		namespace := ""
		if c.Flags().Lookup("namespace") != nil {
			given, _ := c.Flags().GetString("namespace")
			namespace = cmp.Or(given, env.Namespace)
		}
		env.Offer(c.Context(), func(ctx context.Context, c *client.Client) error {
			list, err := c.List(ctx, client.Resource(env.Schemas.Kind(of)), namespace, client.Selection{})
			if err != nil {
				return err
			}
			for i := range list.Items {
				if name := list.Items[i].GetName(); !slices.Contains(args, name) {
					out = append(out, name)
				}
			}
			return nil
		})
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}

package proxies

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/cmd/portolan/serve"
	"github.com/portolan-mesh/portolan/xds/admin"
)

// completeProxies offers the names of the connected proxies, for one argument or a flag.
func completeProxies(env *environment) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, _ string) (out []cobra.Completion, _ cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		namespace := ""
		if c.Flags().Changed("namespace") {
			namespace, _ = c.Flags().GetString("namespace")
		}
		env.Offer(c.Context(), func(ctx context.Context, c *client.Client) error {
			var list admin.ProxyList
			if err := c.JSON(ctx, cli.ProxiesPath(namespace), &list); err != nil {
				return err
			}
			for _, p := range list.Items {
				out = append(out, cobra.CompletionWithDesc(p.Name, p.Type+" of namespace "+p.Namespace))
			}
			return nil
		})
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeProxyFlag is completeProxies for a flag of a command with arguments.
func completeProxyFlag(env *environment) cobra.CompletionFunc {
	return func(c *cobra.Command, _ []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return completeProxies(env)(c, nil, word)
	}
}

// completeSources offers the names of the sources of configuration.
func completeSources(env *environment) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, _ string) (out []cobra.Completion, _ cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		env.Offer(c.Context(), func(ctx context.Context, c *client.Client) error {
			var list serve.SourceList
			if err := c.JSON(ctx, serve.SourcesPath, &list); err != nil {
				return err
			}
			for i := range list.Items {
				out = append(out, list.Items[i].Name)
			}
			return nil
		})
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}

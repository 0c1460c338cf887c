package proxies

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/call"
	"github.com/portolan-mesh/portolan/xds/admin"
)

func newProxyDisconnectCommand(env *environment) *cobra.Command {
	var where proxyScope
	var message, output string
	c := &cobra.Command{
		Use:   "disconnect NODE",
		Short: "End the streams of a proxy, so that it connects anew",
		Long: `End the streams of a proxy, and the connections that they are on. The proxy connects
anew, to this server or another, says what it has, and is sent what differs. What it has
stays in force meanwhile, and no request is lost. It is for who may administer the mesh, as
portolan store compact is, and portolan audit shows who has done it.` + nodeHelp,
		Example: `  portolan proxy disconnect vm-12
  portolan proxy disconnect vm-12 -n shop -m "to another server"`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: completeProxies(env),
		RunE: func(c *cobra.Command, args []string) error {
			if err := where.check(); err != nil {
				return err
			}
			return env.disconnect(c.Context(), args[0], where.namespace, message, output)
		},
	}
	where.register(c)
	c.Flags().StringVarP(&message, "message", "m", "", "what there is to say about it, for the history; one line")
	cli.RegisterOutput(c, &output, "", "json", "yaml")
	return c
}

func (e *environment) disconnect(ctx context.Context, node, namespace, message, output string) error {
	query := url.Values{"node": {node}}
	for name, value := range map[string]string{"namespace": namespace, "message": message} {
		if value != "" {
			query.Set(name, value)
		}
	}
	var done admin.Disconnected
	err := e.CallTheServerOf(ctx, call.Request{Method: http.MethodPost, Path: admin.DisconnectPath, Query: query}, &done)
	if err != nil {
		return err
	}
	if output != "" {
		return cli.WriteDocument(e.Stdout, output, done)
	}
	_, err = fmt.Fprintf(e.Stdout, "%s: %s ended on server %s\n", cli.NodeName(done.Node), cli.CountOf(done.Streams, "stream"), cli.ServerName(done.Server))
	return err
}

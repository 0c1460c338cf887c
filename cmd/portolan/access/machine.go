package access

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/objects"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/discovery/identity/invitation"
	"github.com/portolan-mesh/portolan/discovery/node"
	"github.com/portolan-mesh/portolan/storage/schema"
)

func newMachineCommand(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "machine",
		Short: "Bring machines into the mesh, look at them, drain and remove them",
	}
	c.AddCommand(newMachineInviteCommand(env))
	c.AddCommand(objects.MachineCommands(env.Environment)...)
	return c
}

// xdsPort is the port at which servers take proxies with certificates, where --xds-address names
// none.
const xdsPort = "15012"

func newMachineInviteCommand(env *environment) *cobra.Command {
	var o tokenOrder
	var in invitation.Invitation
	interception := ""
	c := &cobra.Command{
		Use:   "invite --group NAME | --service-account NAME",
		Short: "Make an invitation, and print the line that joins a machine by it",
		Long: `Make an invitation, and print the line that joins a machine by it.

The invitation has the addresses of the servers, the hash of the roots by which the
machine recognizes them, and a join token (portolan token). Whoever has it becomes the
service account, so often and until then: hand it to the machine as its other secrets.

With --group the machine is registered in that WorkloadGroup while it is connected, and
becomes the service account of the group's template.`,
		Example: `  portolan machine invite -n shop --group web --server https://mesh.example.com:15080
  portolan machine invite -n shop --service-account web --server https://mesh.example.com:15080
  portolan machine invite -n shop --service-account web --ttl 168h --uses 200 --cidr 10.20.0.0/16`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if in.Group != "" {
				if err := env.completeAccount(c.Context(), &o, in.Group); err != nil {
					return err
				}
			}
			if err := cli.OneOf("--interception", interception, "", string(node.InterceptionRedirect), string(node.InterceptionTproxy)); err != nil {
				return err
			}
			if o.ServiceAccount == "" {
				return exit.With(exit.Usage, errors.New("give --group NAME for a machine that registers itself, or --service-account NAME"))
			}
			if err := o.validate(); err != nil {
				return err
			}
			if err := completeServers(&in, env.Server); err != nil {
				return exit.With(exit.Usage, err)
			}
			made, err := env.createToken(c.Context(), o)
			if err != nil {
				return err
			}
			in.Token, in.Namespace, in.ServiceAccount = invitation.Pinned(made.Token, made.Roots), made.Namespace, made.ServiceAccount
			text, err := in.Text()
			if err != nil {
				return exit.With(exit.Usage, err)
			}
			fmt.Fprintf(env.Stderr, "The invitation is good for %s as %s/%s, until %s. It is not shown again. On the machine:\n",
				cli.CountOf(made.Uses, "use"), made.Namespace, made.ServiceAccount, made.Expires.Format(time.RFC3339))
			line := "portolan-agent join " + text
			if interception != "" {
				line += " --interception " + interception
			}
			_, err = fmt.Fprintln(env.Stdout, line)
			return err
		},
	}
	o.register(env, c)
	f := c.Flags()
	f.StringVar(&in.Group, "group", "", "WorkloadGroup of the namespace in which the machine is registered while it is connected")
	f.StringVar(&interception, "interception", "", "how the machine is to capture traffic, REDIRECT or TPROXY: the printed line says so, the invitation does not")
	f.StringSliceVar(&in.API, "api-url", nil, "URL at which the machine reaches the config API of a server; may be repeated (default --server)")
	f.StringSliceVar(&in.XDS, "xds-address", nil, "host:port at which the machine reaches a server that takes proxies (serve --secure-xds-address); may be repeated (default the hosts of --api-url, port "+xdsPort+")")
	return c
}

// completeAccount sets the service account of a group, if no flag says another.
func (e *environment) completeAccount(ctx context.Context, o *tokenOrder, group string) error {
	return e.Call(ctx, func(ctx context.Context, api *client.Client) error {
		groups := client.Resource(e.Schemas.Kind(schema.WorkloadGroup))
		stored, err := api.Get(ctx, groups, o.namespace, group)
		if err != nil {
			return explainMissing(ctx, api, groups, place{o.namespace, group}, err)
		}
		account, _, _ := unstructured.NestedString(stored.Object, "spec", "template", "serviceAccount")
		if account = cmp.Or(account, schema.DefaultServiceAccount); o.ServiceAccount != "" && o.ServiceAccount != account {
			return exit.With(exit.Usage, fmt.Errorf("--service-account %s: workloadgroup/%s/%s registers machines of the service account %s: leave the flag out, or change spec.template.serviceAccount", o.ServiceAccount, o.namespace, group, account))
		}
		o.ServiceAccount = account
		return nil
	})
}

// completeServers sets what no flag says from --server, where a machine can reach that.
func completeServers(in *invitation.Invitation, server string) error {
	if len(in.API) == 0 {
		for one := range strings.SplitSeq(server, ",") {
			one = strings.TrimSpace(one)
			u, err := url.Parse(one)
			if err != nil || u.Scheme != "https" || u.Hostname() == "" {
				return fmt.Errorf("--server %s: a machine sends its token over https alone: name the URLs at which it reaches the servers with --api-url", cmp.Or(one, "is empty"))
			}
			if ip, err := netip.ParseAddr(u.Hostname()); u.Hostname() == "localhost" || err == nil && ip.IsLoopback() {
				return errors.New("--server is of this machine alone: name the URLs at which other machines reach the servers with --api-url")
			}
			in.API = append(in.API, one)
		}
	}
	if len(in.XDS) == 0 {
		for _, one := range in.API {
			u, err := url.Parse(one)
			if err != nil {
				return fmt.Errorf("--api-url %q: %w", one, err)
			}
			in.XDS = append(in.XDS, net.JoinHostPort(u.Hostname(), xdsPort))
		}
	}
	draft := *in
	draft.Token, draft.Namespace, draft.ServiceAccount = "t", "n", "s"
	return draft.Validate()
}

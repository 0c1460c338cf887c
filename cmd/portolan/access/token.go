package access

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/credentials"
	"github.com/portolan-mesh/portolan/cmd/portolan/text"
	"github.com/portolan-mesh/portolan/discovery/identity/invitation"
	"github.com/portolan-mesh/portolan/discovery/identity/join"
	"github.com/portolan-mesh/portolan/storage/access"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

func newTokenCommand(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "token",
		Short: "Make join tokens, by which machines get their first certificate",
		Long: `Make join tokens, by which machines get their first certificate.

A join token is good for a time and for a number of uses, as one service account of one
namespace. The server stores its hash alone: what a token is, nobody is told again.`,
	}
	c.AddCommand(newTokenCreateCommand(env), newTokenListCommand(env), newTokenRevokeCommand(env))
	return c
}

// tokenOrder is what a join token is to be good for, by flags.
type tokenOrder struct {
	credentials.Order
	namespace string
	ttl       time.Duration
}

func (o *tokenOrder) register(env *environment, c *cobra.Command) {
	f := c.Flags()
	f.StringVarP(&o.namespace, "namespace", "n", env.Namespace, "namespace of the service account, and of the token")
	f.StringVar(&o.ServiceAccount, "service-account", "", "service account that its holder gets a certificate of")
	f.DurationVar(&o.ttl, "ttl", join.DefaultTTL, "for how long it can be used")
	f.IntVar(&o.Uses, "uses", 1, "how often it can be used")
	f.StringSliceVar(&o.Sources, "cidr", nil, "range of addresses from which it can be used, such as 10.0.0.0/8; may be repeated (default all)")
}

func (o *tokenOrder) validate() error {
	switch {
	case o.ServiceAccount == "":
		return exit.With(exit.Usage, errors.New("--service-account is missing: say who the machine is to be"))
	case o.ttl <= 0:
		return exit.With(exit.Usage, fmt.Errorf("--ttl %s: give a time such as 1h", o.ttl))
	case o.Uses < 1:
		return exit.With(exit.Usage, fmt.Errorf("--uses %d: a token is good for at least one", o.Uses))
	}
	return nil
}

// createToken has the server make a token.
func (e *environment) createToken(ctx context.Context, o tokenOrder) (made credentials.Order, err error) {
	o.TTL = o.ttl.String()
	err = e.Call(ctx, func(ctx context.Context, api *client.Client) error {
		return api.Post(ctx, credentials.JoinTokensPath(o.namespace), o.Order, &made)
	})
	return made, err
}

func newTokenCreateCommand(env *environment) *cobra.Command {
	var o tokenOrder
	output := ""
	c := &cobra.Command{
		Use:   "create --service-account NAME",
		Short: "Make a join token, and print it this once",
		Long: `Make a join token, and print it this once. Whoever has it gets a certificate of the
service account, so often and until then. --cidr bounds from where.`,
		Example: `  portolan token create -n shop --service-account web
  portolan token create -n shop --service-account web --ttl 24h --uses 50 --cidr 10.20.0.0/16
  portolan token create -n shop --service-account web > web.token`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			made, err := env.createToken(c.Context(), o)
			if err != nil {
				return err
			}
			if output != "" {
				return cli.WriteDocument(env.Stdout, output, &made)
			}
			fmt.Fprintf(env.Stderr, "jointoken/%s/%s is good for %s as %s/%s, until %s. It is not shown again.\n",
				made.Namespace, made.Name, cli.CountOf(made.Uses, "use"), made.Namespace, made.ServiceAccount, made.Expires.Format(time.RFC3339))
			_, err = fmt.Fprintln(env.Stdout, invitation.Pinned(made.Token, made.Roots))
			return err
		},
	}
	o.register(env, c)
	cli.RegisterOutput(c, &output, "", "json", "yaml")
	return c
}

func newTokenListCommand(env *environment) *cobra.Command {
	namespace, all, output := "", false, ""
	c := &cobra.Command{
		Use:   "list",
		Short: "List join tokens, and what is left of them",
		Long: `List join tokens, and what is left of them. Who has used one, and from where, is in
its history: portolan history jointoken/NAME. A day after a token has expired it goes.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return env.Call(c.Context(), func(ctx context.Context, api *client.Client) error {
				if all {
					namespace = ""
				}
				return env.List(ctx, api.Fresh(client.Freshness{Consistent: true}), namespace, output, cli.Listing{
					Kind: schema.JoinToken, Head: []string{"NAMESPACE", "NAME", "SERVICE-ACCOUNT", "USED", "ENDS", "FROM"}, None: "There are no join tokens.",
					Rows: func(item *unstructured.Unstructured) ([][]string, error) {
						spec := &access.JoinToken{}
						if err := runtime.DefaultUnstructuredConverter.FromUnstructured(config.Content(item.Object), spec); err != nil {
							return nil, err
						}
						return [][]string{{item.GetNamespace(), item.GetName(), text.TokenIdentity(spec), text.Uses(spec), ends(spec, env.Now()), cli.FormatList(spec.Sources, false)}}, nil
					},
				})
			})
		},
	}
	f := c.Flags()
	f.StringVarP(&namespace, "namespace", "n", env.Namespace, "namespace of the tokens")
	f.BoolVarP(&all, "all-namespaces", "A", false, "list those of all namespaces")
	cli.RegisterOutput(c, &output, "", "json", "yaml")
	return c
}

// ends formats when a token expires, or that it has expired.
func ends(t *access.JoinToken, now time.Time) string {
	switch left := t.Expires.Sub(now); {
	case left <= 0:
		return "EXPIRED " + cli.Age(now, t.Expires) + " ago"
	case t.Used >= t.Uses:
		return "USED UP"
	default:
		return "in " + cli.Age(t.Expires, now)
	}
}

func newTokenRevokeCommand(env *environment) *cobra.Command {
	namespace := ""
	c := &cobra.Command{
		Use:   "revoke NAME...",
		Short: "Revoke join tokens: nobody gets a certificate by them any more",
		Long: `Revoke join tokens: nobody gets a certificate by them any more. NAME is that of
portolan token list, or the token itself. Certificates that they have earned stay good.`,
		Example: `  portolan token revoke k5x2mq7a4tz6w3hb -n shop`,
		Args:    cobra.MinimumNArgs(1), ValidArgsFunction: cli.CompleteNames(env.Environment, schema.JoinToken, 100),
		RunE: func(c *cobra.Command, args []string) error {
			return env.Call(c.Context(), func(ctx context.Context, api *client.Client) error {
				for _, name := range args {
					at := namespace
					if join.Is(name) || strings.HasPrefix(name, join.MemberPrefix) {
						var ok bool
						if at, name, ok = join.Parse(strings.Replace(name, join.MemberPrefix, join.Prefix, 1)); !ok {
							return exit.With(exit.Data, errors.New("this is no join token: a part of it is missing, or too much"))
						}
					}
					if _, err := api.Delete(ctx, client.Resource(env.Schemas.Kind(schema.JoinToken)), at, name, ""); err != nil {
						return fmt.Errorf("jointoken/%s/%s: %w", at, name, err)
					}
					fmt.Fprintf(env.Stdout, "jointoken/%s/%s revoked\n", at, name)
				}
				return nil
			})
		},
	}
	c.Flags().StringVarP(&namespace, "namespace", "n", env.Namespace, "namespace of the tokens")
	return c
}

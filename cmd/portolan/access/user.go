package access

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/batch"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/call"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/credentials"
	"github.com/portolan-mesh/portolan/discovery/access"
	spec "github.com/portolan-mesh/portolan/storage/access"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

func newUserCommand(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "user",
		Short: "Make the users of the config API, and their tokens",
		Long: `Make the users of the config API, and their tokens.

Until the first user exists, whoever is on the machine of the server may do everything. From then
on nobody is let in without a token or a client certificate, but the user who runs the server over its
socket.`,
	}
	c.AddCommand(newUserCreateCommand(env), newUserListCommand(env), newUserDisableCommand(env, true), newUserDisableCommand(env, false),
		newUserDeleteCommand(env), newUserTokenCommand(env))
	return c
}

type tokenFlags struct {
	ttl  time.Duration
	note string
}

func (o *tokenFlags) register(c *cobra.Command) {
	c.Flags().DurationVar(&o.ttl, "ttl", credentials.DefaultTTL, "how long the token is valid; 0 is without an end")
	c.Flags().StringVar(&o.note, "note", "", "what the token is for")
}

func (o *tokenFlags) newToken() (*credentials.NewToken, error) {
	if o.ttl < 0 || o.ttl%time.Second != 0 {
		return nil, exit.With(exit.Usage, fmt.Errorf("--ttl %s: give whole seconds, or 0 for a token without an end", o.ttl))
	}
	return &credentials.NewToken{Note: o.note, TTL: int64(o.ttl / time.Second)}, nil
}

// showToken prints a new token; it cannot be shown again.
func (e *environment) showToken(made *credentials.UserToken) error {
	if made.Token == "" {
		return nil
	}
	until := "without an end"
	if !made.Expires.IsZero() {
		until = "until " + made.Expires.Format(time.RFC3339)
	}
	fmt.Fprintf(e.Stderr, "Token %s of user %s is valid %s. It is not shown again.\n", made.ID, made.User, until)
	_, err := fmt.Fprintln(e.Stdout, made.Token)
	return err
}

func newUserCreateCommand(env *environment) *cobra.Command {
	var groups, roles []string
	var token tokenFlags
	namespace, without := "", false
	c := &cobra.Command{
		Use:   "create NAME [--group GROUP...] [--role ROLE... [-n NAMESPACE]]",
		Short: "Make a user, and print a token this once",
		Long: `Make a user, and print a token this once. --role binds roles to the user, for the whole
mesh or for the namespace of -n: a built-in one (portolan auth roles), or one that somebody wrote.

The first user must have the role admin for the whole mesh, unless the user who runs the server
makes the first user over its socket.`,
		Example: `  portolan user create alice --role admin > alice.token
  portolan user create bob --role editor -n shop --ttl 720h
  portolan user create ci --group deployers --note "the pipeline of shop"`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if namespace != "" && len(roles) == 0 {
				return exit.With(exit.Usage, errors.New("-n is the namespace of --role, which is missing"))
			}
			asked := credentials.NewUser{Name: args[0], Groups: groups}
			for _, role := range roles {
				asked.Roles = append(asked.Roles, credentials.NewRole{Role: role, Namespace: namespace})
			}
			var err error
			if asked.Token, err = token.newToken(); err != nil {
				return err
			}
			if without {
				asked.Token = nil
			}
			var made credentials.UserToken
			var warnings []string
			err = env.Call(c.Context(), func(ctx context.Context, api *client.Client) (err error) {
				warnings, err = api.Do(ctx, call.Request{Method: http.MethodPost, Path: credentials.UsersPath, Body: asked}, &made)
				return err
			})
			if err != nil {
				return err
			}
			fmt.Fprintf(env.Stderr, "user/%s/%s created\n", made.Namespace, made.User)
			env.Warn(warnings)
			return env.showToken(&made)
		},
	}
	f := c.Flags()
	f.StringSliceVar(&groups, "group", nil, "group that the user is in; may be repeated")
	f.StringSliceVar(&roles, "role", nil, "role to bind to the user; may be repeated")
	f.StringVarP(&namespace, "namespace", "n", "", "namespace in which the user has the roles (default all)")
	f.BoolVar(&without, "no-token", false, "make no token, for a user with a client certificate")
	token.register(c)
	return c
}

func (e *environment) storedUser(ctx context.Context, api *client.Client, name string) (*unstructured.Unstructured, *spec.User, error) {
	self, err := e.self(ctx, api)
	if err != nil {
		return nil, nil, err
	}
	item, err := api.Fresh(client.Freshness{Consistent: true}).Get(ctx, client.Resource(e.Schemas.Kind(schema.User)), self.Root, name)
	if err != nil {
		return nil, nil, err
	}
	user, err := userSpec(item)
	return item, user, err
}

func userSpec(item *unstructured.Unstructured) (*spec.User, error) {
	out := &spec.User{}
	return out, runtime.DefaultUnstructuredConverter.FromUnstructured(config.Content(item.Object), out)
}

func newUserListCommand(env *environment) *cobra.Command {
	output := ""
	c := &cobra.Command{
		Use:   "list",
		Short: "List users",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return env.Call(c.Context(), func(ctx context.Context, api *client.Client) error {
				self, err := env.self(ctx, api)
				if err != nil {
					return err
				}
				return env.List(ctx, api.Fresh(client.Freshness{Consistent: true}), self.Root, output, cli.Listing{
					Kind: schema.User, Head: []string{"NAME", "GROUPS", "TOKENS", "STATE"}, None: "There are no users: whoever is on the machine of the server may do everything.",
					Rows: func(item *unstructured.Unstructured) ([][]string, error) {
						user, err := userSpec(item)
						if err != nil {
							return nil, err
						}
						state := ""
						if user.Disabled {
							state = "DISABLED"
						}
						return [][]string{{item.GetName(), cli.FormatList(user.Groups, false), fmt.Sprint(len(user.Tokens)), state}}, nil
					},
				})
			})
		},
	}
	cli.RegisterOutput(c, &output, "", "json", "yaml")
	return c
}

func newUserDisableCommand(env *environment, disable bool) *cobra.Command {
	use, done, short := "enable", "enabled", "Let a disabled user in again"
	if disable {
		use, done, short = "disable", "disabled", "Turn a user away, whatever the credential, without deleting the user"
	}
	return &cobra.Command{
		Use:   use + " NAME",
		Short: short,
		Args:  cobra.ExactArgs(1), ValidArgsFunction: cli.CompleteNames(env.Environment, schema.User, 1),
		RunE: func(c *cobra.Command, args []string) error {
			return env.Call(c.Context(), func(ctx context.Context, api *client.Client) error {
				item, user, err := env.storedUser(ctx, api, args[0])
				if err != nil {
					return err
				}
				user.Disabled = disable
				operation, err := batch.Write(batch.Update, &config.Config{Meta: config.Meta{
					GroupVersionKind: schema.User, Namespace: item.GetNamespace(), Name: args[0], ResourceVersion: item.GetResourceVersion(),
					Labels: item.GetLabels(), Annotations: item.GetAnnotations(),
				}, Spec: user})
				if err != nil {
					return err
				}
				if _, err := api.Apply(ctx, batch.New(operation)); err != nil {
					return err
				}
				_, err = fmt.Fprintf(env.Stdout, "user/%s/%s %s\n", item.GetNamespace(), args[0], done)
				return err
			})
		},
	}
}

func newUserDeleteCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use:   "delete NAME",
		Short: "Delete a user, with the bindings that are for the user alone",
		Long: `Delete a user, with the tokens, and with the bindings that are for the user alone. Bindings
for others too stay as they are: a later user of the same name has their roles.`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: cli.CompleteNames(env.Environment, schema.User, 1),
		RunE: func(c *cobra.Command, args []string) error {
			return env.Call(c.Context(), func(ctx context.Context, api *client.Client) error {
				self, err := env.self(ctx, api)
				if err != nil {
					return err
				}
				operations := []batch.Operation{batch.Remove(config.Key{Kind: schema.User, Namespace: self.Root, Name: args[0]}, "")}
				own, err := env.bindingsOf(ctx, api, args[0])
				if err != nil {
					return err
				}
				for _, key := range own {
					operations = append(operations, batch.Remove(key, ""))
				}
				result, err := api.Apply(ctx, batch.New(operations...))
				if err != nil {
					return err
				}
				for _, r := range result.Results {
					fmt.Fprintf(env.Stdout, "%s/%s/%s deleted\n", strings.ToLower(r.Kind), r.Namespace, r.Name)
				}
				return nil
			})
		},
	}
}

// bindingsOf returns the bindings for this user only, as far as the caller may see them.
func (e *environment) bindingsOf(ctx context.Context, api *client.Client, user string) ([]config.Key, error) {
	list, err := api.Fresh(client.Freshness{Consistent: true}).List(ctx, client.Resource(e.Schemas.Kind(schema.RoleBinding)), "", client.Selection{})
	if apierrors.IsForbidden(err) {
		e.Warn([]string{"the bindings of the user stay, as you may not list them"})
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []config.Key
	for i := range list.Items {
		binding := &spec.RoleBinding{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(config.Content(list.Items[i].Object), binding); err != nil {
			return nil, err
		}
		if len(binding.Subjects) == 1 && binding.Subjects[0] == (spec.Subject{Kind: spec.SubjectUser, Name: user}) {
			out = append(out, config.Key{Kind: schema.RoleBinding, Namespace: list.Items[i].GetNamespace(), Name: list.Items[i].GetName()})
		}
	}
	return out, nil
}

func newUserTokenCommand(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "token",
		Short: "Make, list and revoke the tokens of a user",
		Long: `Make, list and revoke the tokens of a user. The server keeps their hashes: what a token is,
nobody is told again. Give each program a token of its own.`,
	}
	var token tokenFlags
	add := &cobra.Command{
		Use:     "add NAME",
		Short:   "Make another token of a user, and print it this once",
		Example: `  portolan user token add alice --ttl 24h --note laptop`,
		Args:    cobra.ExactArgs(1), ValidArgsFunction: cli.CompleteNames(env.Environment, schema.User, 1),
		RunE: func(c *cobra.Command, args []string) error {
			asked, err := token.newToken()
			if err != nil {
				return err
			}
			var made credentials.UserToken
			err = env.Call(c.Context(), func(ctx context.Context, api *client.Client) error {
				return api.Post(ctx, tokensPath(args[0]), asked, &made)
			})
			if err != nil {
				return err
			}
			return env.showToken(&made)
		},
	}
	token.register(add)
	c.AddCommand(add, newUserTokenListCommand(env), newUserTokenRevokeCommand(env))
	return c
}

func tokensPath(user string) string {
	return strings.Replace(credentials.TokensPath, "{name}", url.PathEscape(user), 1)
}

func newUserTokenListCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use:   "list NAME",
		Short: "List the tokens of a user",
		Args:  cobra.ExactArgs(1), ValidArgsFunction: cli.CompleteNames(env.Environment, schema.User, 1),
		RunE: func(c *cobra.Command, args []string) error {
			return env.Call(c.Context(), func(ctx context.Context, api *client.Client) error {
				_, user, err := env.storedUser(ctx, api, args[0])
				if err != nil {
					return err
				}
				rows := [][]string{{"ID", "CREATED", "ENDS", "NOTE"}}
				for _, t := range user.Tokens {
					rows = append(rows, []string{t.ID, cli.Age(env.Now(), t.Created) + " ago", tokenEnds(t, env.Now()), cli.Plain(t.Note)})
				}
				return cli.WriteTable(env.Stdout, rows)
			})
		},
	}
}

// tokenEnds formats when a token expires, or that it has expired.
func tokenEnds(t spec.Token, now time.Time) string {
	switch {
	case t.Expires.IsZero():
		return "never"
	case !now.Before(t.Expires):
		return "EXPIRED " + cli.Age(now, t.Expires) + " ago"
	}
	return "in " + cli.Age(t.Expires, now)
}

func newUserTokenRevokeCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use:     "revoke NAME ID...",
		Short:   "Revoke tokens of a user: nobody is let in by them any more",
		Example: `  portolan user token revoke alice k5x2mq7a4t`,
		Args:    cobra.MinimumNArgs(2), ValidArgsFunction: cli.CompleteNames(env.Environment, schema.User, 1),
		RunE: func(c *cobra.Command, args []string) error {
			return env.Call(c.Context(), func(ctx context.Context, api *client.Client) error {
				for _, id := range args[1:] {
					if strings.HasPrefix(id, access.TokenPrefix) {
						return exit.With(exit.Data, errors.New("give the id of the token, which portolan user token list shows, not the token"))
					}
					if err := api.DeletePath(ctx, tokensPath(args[0])+"/"+url.PathEscape(id)); err != nil {
						return err
					}
					fmt.Fprintf(env.Stdout, "token %s of user %s revoked\n", id, args[0])
				}
				return nil
			})
		},
	}
}

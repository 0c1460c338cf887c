package access

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/credentials"
	"github.com/portolan-mesh/portolan/cmd/portolan/text"
	"github.com/portolan-mesh/portolan/discovery/access"
	spec "github.com/portolan-mesh/portolan/storage/access"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/spelling"
)

func newAuthCommand(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "auth",
		Short: "Ask who you are to the server, and what you may do",
		Long: `Ask who you are to the server, and what you may do.

Roles give rights, and bindings give roles to users and groups: portolan get roles,rolebindings -A.`,
	}
	c.AddCommand(newCanICommand(env), newWhoAmICommand(env), newRolesCommand(env))
	return c
}

var errDenied = exit.Quietly(exit.Failure, "no")

func newCanICommand(env *environment) *cobra.Command {
	namespace, all := "", false
	c := &cobra.Command{
		Use:   "can-i VERB (KIND | KIND NAME | KIND/NAME)",
		Short: "Ask whether you may do something",
		Long: `Ask whether you may do something. The exit code is 0 for yes, and 1 for no.

VERB is get, list, watch, create, update, delete, reveal (the data of secrets), administer
(the store and the server) or patch-security (EnvoyFilters that open what policies close). KIND is one of portolan api-resources, * for all, or what else the server has:
` + folded(access.Views()) + `.`,
		Example: `  portolan auth can-i update vs/reviews -n shop
  portolan auth can-i list virtualservices -A
  portolan auth can-i reveal secrets -n shop`,
		Args: cobra.RangeArgs(2, 3),
		RunE: func(c *cobra.Command, args []string) error {
			if err := cli.OneOf("VERB", args[0], append(spec.Verbs(), spec.All)...); err != nil {
				return err
			}
			kind, name, slashed := strings.Cut(args[1], "/")
			if len(args) == 3 {
				if slashed {
					return exit.With(exit.Usage, fmt.Errorf("%s %s: name one object", args[1], args[2]))
				}
				name = args[2]
			}
			if err := cli.OneScope(all, c.Flags().Changed("namespace")); err != nil {
				return err
			}
			asked := &credentials.ResourceAttributes{Verb: args[0], Resource: kind, Name: name, Namespace: namespace}
			if err := nameResource(env.Schemas.With(schema.Side()), asked); err != nil {
				return exit.With(exit.Usage, err)
			}
			if all {
				asked.Namespace = ""
			}
			var answer credentials.AccessReview
			err := env.Call(c.Context(), func(ctx context.Context, api *client.Client) error {
				return api.Post(ctx, credentials.AccessReviewPath, credentials.NewReview(asked), &answer)
			})
			if err != nil {
				return err
			}
			if answer.Status.Allowed {
				_, err := fmt.Fprintln(env.Stdout, "yes")
				return err
			}
			fmt.Fprintln(env.Stdout, "no")
			fmt.Fprintln(env.Stderr, cli.Plain(answer.Status.Reason))
			return errDenied
		},
	}
	f := c.Flags()
	f.StringVarP(&namespace, "namespace", "n", env.Namespace, "namespace of the objects")
	f.BoolVarP(&all, "all-namespaces", "A", false, "in all namespaces")
	return c
}

// folded formats words as a list on two lines, for a help text.
func folded(words []string) string {
	half := len(words) / 2
	return strings.Join(words[:half], ", ") + ",\n" + strings.Join(words[half:], ", ")
}

// nameResource replaces the name of a kind by its name in rules. It refuses a word that
// neither is a kind nor may stand in rules.
func nameResource(schemas schema.Set, asked *credentials.ResourceAttributes) error {
	kind, err := cli.KindNamed(schemas, asked.Resource)
	switch {
	case err == nil:
		asked.Group, asked.Version, asked.Resource = kind.Group, kind.Version, kind.Plural
	case asked.Resource == spec.All, slices.Contains(access.Views(), asked.Resource):
	default:
		names := access.Views()
		for _, kind := range schemas.All() {
			names = append(names, kind.Plural, kind.Singular)
		}
		var meant []string
		if nearest := spelling.Nearest(asked.Resource, names); nearest != "" {
			meant = []string{nearest}
		}
		return fmt.Errorf("the server has no kind %q, so that nobody can be asked about it: see portolan api-resources for the kinds%s", asked.Resource, cli.OrDidYouMean(meant))
	}
	return nil
}

// self asks the server who it takes the user for.
func (e *environment) self(ctx context.Context, api *client.Client) (*credentials.Self, error) {
	out := &credentials.Self{}
	if err := api.JSON(ctx, credentials.SelfPath, out); err != nil {
		return nil, err
	}
	return out, nil
}

func newWhoAmICommand(env *environment) *cobra.Command {
	output := ""
	c := &cobra.Command{
		Use:   "whoami",
		Short: "Show who you are to the server, and which rights that gives",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return env.Call(c.Context(), func(ctx context.Context, api *client.Client) error {
				self, err := env.self(ctx, api)
				if err != nil {
					return err
				}
				if output != "" {
					return cli.WriteDocument(env.Stdout, output, self)
				}
				return env.showSelf(self)
			})
		},
	}
	cli.RegisterOutput(c, &output, "", "json", "yaml")
	return c
}

func (e *environment) showSelf(self *credentials.Self) error {
	fmt.Fprintf(e.Stdout, "User:    %s\n", cli.Plain(self.User))
	if len(self.Groups) > 0 {
		fmt.Fprintf(e.Stdout, "Groups:  %s\n", cli.Plain(strings.Join(self.Groups, ", ")))
	}
	if self.Unproved {
		fmt.Fprintln(e.Stdout, "Proof:   none: the server has no users yet, or was started with --anonymous-loopback, and lets in whoever is on its machine")
	}
	if !self.Until.IsZero() {
		fmt.Fprintf(e.Stdout, "Until:   %s\n", self.Until.Format(time.RFC3339))
	}
	if len(self.Grants) == 0 {
		_, err := fmt.Fprintln(e.Stdout, "Rights:  none: no role is bound to the user or to a group of the user")
		return err
	}
	rows := [][]string{{"NAMESPACE", "ROLE", "BINDING", "RIGHTS"}}
	for _, g := range self.Grants {
		namespace := g.Namespace
		if namespace == "" {
			namespace = "(all)"
		}
		rows = append(rows, []string{namespace, g.Role, g.Binding, cli.Plain(text.Rule(g.Rule))})
	}
	fmt.Fprintln(e.Stdout)
	return cli.WriteTable(e.Stdout, rows)
}

func newRolesCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use:   "roles",
		Short: "Show the built-in roles",
		Long: `Show the built-in roles. No object has them, and a binding names them as any other role.
portolan get roles -A shows those that somebody wrote.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			rows := [][]string{{"ROLE", "RIGHTS"}}
			for _, name := range spec.BuiltIn() {
				rules, _ := access.BuiltIn(name, env.Schemas)
				for _, rule := range rules {
					rows = append(rows, []string{name, text.Rule(rule)})
				}
			}
			return cli.WriteTable(env.Stdout, rows)
		},
	}
}

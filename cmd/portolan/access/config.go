package access

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/contexts"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
)

func newConfigCommand(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "config",
		Short: "Keep the servers that you call by name",
		Long: `Keep the servers that you call by name, and what each is told: contexts.

  portolan config set-context prod --server https://mesh.example:15443 --ca mesh.pem
  portolan config use-context prod
  portolan --context staging get vs -A

The file is $PORTOLAN_CONFIG, or portolan/config.yaml in your configuration directory.
Only you may read it. A flag goes before a PORTOLAN_ variable, and that before the
context. portolan login keeps in it who you are. Where --server or PORTOLAN_SERVER names another server than the context, the
context's token and certificate are not sent there.`,
	}
	c.AddCommand(newGetContextsCommand(env), newCurrentContextCommand(env), newUseContextCommand(env), newSetContextCommand(env), newDeleteContextCommand(env))
	return c
}

func newGetContextsCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use:   "get-contexts",
		Short: "List the contexts",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			file, err := env.Contexts()
			if err != nil {
				return err
			}
			rows := [][]string{{"CURRENT", "NAME", "SERVER", "NAMESPACE", "AUTHENTICATION"}}
			for _, one := range file.Contexts {
				current := " "
				if one.Name == file.Current {
					current = "*"
				}
				rows = append(rows, []string{current, one.Name, one.Server, one.Namespace, authenticationOf(one)})
			}
			return cli.WriteTable(env.Stdout, rows)
		},
	}
}

// authenticationOf describes how a context proves who its user is, without showing a token.
func authenticationOf(c contexts.Context) string {
	var out []string
	if c.Token != "" {
		out = append(out, "token")
	}
	if c.TokenFile != "" {
		out = append(out, "token in "+c.TokenFile)
	}
	if c.Login != nil {
		out = append(out, "login with "+c.Login.Issuer)
	}
	if c.Cert != "" {
		out = append(out, "certificate "+c.Cert)
	}
	return strings.Join(out, ", ")
}

func newCurrentContextCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use:   "current-context",
		Short: "Print the name of the context of commands that name none",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			file, err := env.Contexts()
			if err != nil {
				return err
			}
			if file.Current == "" {
				return errors.New("there is no current context: portolan config use-context NAME")
			}
			fmt.Fprintln(env.Stdout, file.Current)
			return nil
		},
	}
}

func newUseContextCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use:               "use-context NAME",
		Short:             "Have commands that name no context use this one",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: env.completeContexts,
		RunE: func(c *cobra.Command, args []string) error {
			return env.editContexts(c.Context(), func(file contexts.File) (contexts.File, error) {
				_, err := cli.FindContext(file, args[0])
				file.Current = args[0]
				return file, err
			}, "%s is the current context.", args[0])
		},
	}
}

func newDeleteContextCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use:               "delete-context NAME",
		Short:             "Forget a context",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: env.completeContexts,
		RunE: func(c *cobra.Command, args []string) error {
			return env.editContexts(c.Context(), func(file contexts.File) (contexts.File, error) {
				_, err := cli.FindContext(file, args[0])
				return file.Without(args[0]), err
			}, "%s is forgotten.", args[0])
		},
	}
}

func newSetContextCommand(env *environment) *cobra.Command {
	namespace := ""
	c := &cobra.Command{
		Use:   "set-context NAME",
		Short: "Make a context, or change it",
		Long: `Make a context, or change it: what flags say is kept, and what they leave out
stays as it is. An empty value takes a setting away. The first context is the current one.
A token, or a login, that was for another server is not kept.`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: env.completeContexts,
		RunE: func(c *cobra.Command, args []string) error {
			return env.editContexts(c.Context(), func(file contexts.File) (contexts.File, error) {
				one, _ := file.Find(args[0])
				one.Name = args[0]
				before := one
				for flag, field := range cli.Settings(&one) {
					f := c.Flags().Lookup(flag)
					if f == nil || !f.Changed {
						continue
					}
					*field = f.Value.String()
					if isFile(flag) {
						var err error
						if *field, err = absolute(*field); err != nil {
							return file, err
						}
					}
				}
				if before.Server != "" && !cli.Among(one.Server, before.Server) { // the other server must not get this one's credentials
					if one.Login = nil; one.Token == before.Token {
						one.Token = ""
					}
				}
				if len(file.Contexts) == 0 {
					file.Current = one.Name
				}
				return file.With(one), nil
			}, "%s is kept in %s.", args[0], cli.ContextsFile())
		},
	}
	c.Flags().StringVarP(&namespace, "namespace", "n", "", "namespace where a command needs one and has no -n")
	return c
}

// absolute returns the absolute path of a file, empty for none.
func absolute(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	return filepath.Abs(file)
}

func isFile(flag string) bool {
	return flag == "ca" || flag == "cert" || flag == "key" || flag == "token-file"
}

func (e *environment) editContexts(ctx context.Context, edit func(contexts.File) (contexts.File, error), message string, args ...any) error {
	err := contexts.Update(ctx, cli.ContextsFile(), func(file contexts.File) (contexts.File, bool, error) {
		file, err := edit(file)
		return file, true, err
	})
	if err != nil {
		return asData(err)
	}
	fmt.Fprintf(e.Stdout, message+"\n", args...)
	return nil
}

// asData marks an error of the file of contexts as an error of the input.
func asData(err error) error {
	if exit.Is(err, exit.Usage) || errors.Is(err, context.Canceled) {
		return err
	}
	return exit.With(exit.Data, err)
}

func (e *environment) completeContexts(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	file, err := e.Contexts()
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return file.Names(), cobra.ShellCompDirectiveNoFileComp
}

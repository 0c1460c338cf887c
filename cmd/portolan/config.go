package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

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
			file, err := env.contexts()
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
			return writeTable(env.stdout, rows)
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
			file, err := env.contexts()
			if err != nil {
				return err
			}
			if file.Current == "" {
				return errors.New("there is no current context: portolan config use-context NAME")
			}
			fmt.Fprintln(env.stdout, file.Current)
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
				_, err := findContext(file, args[0])
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
				_, err := findContext(file, args[0])
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
				for flag, field := range settings(&one) {
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
				if before.Server != "" && !among(one.Server, before.Server) { // the other server must not get this one's credentials
					if one.Login = nil; one.Token == before.Token {
						one.Token = ""
					}
				}
				if len(file.Contexts) == 0 {
					file.Current = one.Name
				}
				return file.With(one), nil
			}, "%s is kept in %s.", args[0], contextsFile())
		},
	}
	c.Flags().StringVarP(&namespace, "namespace", "n", "", "namespace where a command needs one and has no -n")
	return c
}

// settings maps flags to the settings of a context.
func settings(c *contexts.Context) map[string]*string {
	return map[string]*string{
		"server": &c.Server, "namespace": &c.Namespace, "ca": &c.CA, "cert": &c.Cert, "key": &c.Key, "token": &c.Token, "token-file": &c.TokenFile,
	}
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

// variable returns the environment variable that can replace a flag.
func variable(flag string) string {
	return "PORTOLAN_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// contextsFile returns the path of the file of contexts.
func contextsFile() string { return cmp.Or(os.Getenv("PORTOLAN_CONFIG"), contexts.DefaultPath()) }

// contexts reads the file of contexts.
func (e *environment) contexts() (contexts.File, error) {
	file, err := contexts.Read(contextsFile())
	if err != nil {
		return file, exit.With(exit.Data, err)
	}
	return file, nil
}

// editContexts edits the file of contexts, and prints a message.
func (e *environment) editContexts(ctx context.Context, edit func(contexts.File) (contexts.File, error), message string, args ...any) error {
	err := contexts.Update(ctx, contextsFile(), func(file contexts.File) (contexts.File, bool, error) {
		file, err := edit(file)
		return file, true, err
	})
	if err != nil {
		return asData(err)
	}
	fmt.Fprintf(e.stdout, message+"\n", args...)
	return nil
}

// asData marks an error of the file of contexts as an error of the input.
func asData(err error) error {
	if exit.Is(err, exit.Usage) || errors.Is(err, context.Canceled) {
		return err
	}
	return exit.With(exit.Data, err)
}

func findContext(file contexts.File, name string) (contexts.Context, error) {
	one, ok := file.Find(name)
	if !ok {
		return one, exit.With(exit.Data, fmt.Errorf("there is no context %q in %s: the names are %s", name, contextsFile(), cmp.Or(strings.Join(file.Names(), ", "), "none")))
	}
	return one, nil
}

// callsNoServer says whether a command needs no context, so that a broken one does not stop
// it.
func callsNoServer(command string) bool {
	first, _, _ := strings.Cut(command, " ")
	return command == "store run" || slices.Contains([]string{"", "serve", "config", "login", "version", "help", "completion", "exit-codes"}, first)
}

// useContext takes settings from a context for flags that were set neither on the command line
// nor by a variable. It uses the context in --context or PORTOLAN_CONTEXT, else the current
// one.
func (e *environment) useContext(c *cobra.Command) error {
	name := cmp.Or(e.context, os.Getenv("PORTOLAN_CONTEXT"))
	file, err := e.contexts()
	if err != nil || name == "" && file.Current == "" {
		return err
	}
	one, err := findContext(file, cmp.Or(name, file.Current))
	if err != nil {
		return err
	}
	global := c.Root().PersistentFlags()
	given := func(flag string) bool {
		return global.Changed(flag) || os.Getenv(variable(flag)) != ""
	}
	credentials := one.Server == "" || !given("server") || among(e.server, one.Server)
	for flag, field := range settings(&one) {
		f := global.Lookup(flag)
		if f == nil || *field == "" || given(flag) || flag != "server" && !credentials {
			continue
		}
		if err := f.Value.Set(*field); err != nil {
			return err
		}
	}
	if credentials && one.Login != nil && among(one.Login.Server, e.server) {
		e.credentials.session = newSession(e, one.Name)
	}
	if one.Namespace == "" || os.Getenv(variable("namespace")) != "" {
		return nil
	}
	if f := c.Flags().Lookup("namespace"); f != nil && !f.Changed && f.DefValue == e.namespace && f.DefValue != "" {
		if err := f.Value.Set(one.Namespace); err != nil {
			return err
		}
	}
	e.namespace = one.Namespace
	return nil
}

// sameServer says whether two addresses mean the same server: the same socket, or the same
// scheme, host and port.
func sameServer(a, b string) bool {
	at, ok := endpointOf(a)
	other, ok2 := endpointOf(b)
	return ok && ok2 && at == other
}

// endpointOf returns the canonical form of a server's address, or false if it is no address.
func endpointOf(server string) (string, bool) {
	if path, ok := strings.CutPrefix(server, "unix:"); ok {
		return "unix:" + strings.TrimPrefix(path, "//"), true
	}
	if !strings.Contains(server, "://") {
		server = "http://" + server
	}
	u, err := url.Parse(server)
	if err != nil || u.Hostname() == "" {
		return "", false
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return u.Scheme + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), port), true
}

// completeContexts offers the names of contexts.
func (e *environment) completeContexts(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	file, err := e.contexts()
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return file.Names(), cobra.ShellCompDirectiveNoFileComp
}

package cli

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/portolan-mesh/portolan/cmd/portolan/contexts"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
)

// Settings maps flags to the settings of a context.
func Settings(c *contexts.Context) map[string]*string {
	return map[string]*string{
		"server": &c.Server, "namespace": &c.Namespace, "ca": &c.CA, "cert": &c.Cert, "key": &c.Key, "token": &c.Token, "token-file": &c.TokenFile,
	}
}

// Variable returns the environment variable that can replace a flag.
func Variable(flag string) string {
	return "PORTOLAN_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// ByVariable says whether an environment variable sets a flag.
func ByVariable(flag string) bool { return os.Getenv(Variable(flag)) != "" }

// ContextName returns the context that the user asks for, by --context or PORTOLAN_CONTEXT;
// empty for the current one.
func (e *Environment) ContextName() string {
	return cmp.Or(e.Context, os.Getenv("PORTOLAN_CONTEXT"))
}

// ContextsFile returns the path of the file of contexts.
func ContextsFile() string { return cmp.Or(os.Getenv("PORTOLAN_CONFIG"), contexts.DefaultPath()) }

// Contexts reads the file of contexts.
func (e *Environment) Contexts() (contexts.File, error) {
	file, err := contexts.Read(ContextsFile())
	if err != nil {
		return file, exit.With(exit.Data, err)
	}
	return file, nil
}

func FindContext(file contexts.File, name string) (contexts.Context, error) {
	one, ok := file.Find(name)
	if !ok {
		return one, exit.With(exit.Data, fmt.Errorf("there is no context %q in %s: the names are %s", name, ContextsFile(), cmp.Or(strings.Join(file.Names(), ", "), "none")))
	}
	return one, nil
}

// UseContext takes settings from a context for flags that were set neither on the command line
// nor by a variable. It uses the context in --context or PORTOLAN_CONTEXT, else the current
// one.
func (e *Environment) UseContext(c *cobra.Command) error {
	name := e.ContextName()
	file, err := e.Contexts()
	if err != nil || name == "" && file.Current == "" {
		return err
	}
	one, err := FindContext(file, cmp.Or(name, file.Current))
	if err != nil {
		return err
	}
	global := c.Root().PersistentFlags()
	given := func(flag string) bool {
		return global.Changed(flag) || ByVariable(flag)
	}
	credentials := one.Server == "" || !given("server") || Among(e.Server, one.Server)
	for flag, field := range Settings(&one) {
		f := global.Lookup(flag)
		if f == nil || *field == "" || given(flag) || flag != "server" && !credentials {
			continue
		}
		if err := f.Value.Set(*field); err != nil {
			return err
		}
	}
	if credentials && one.Login != nil && Among(one.Login.Server, e.Server) {
		e.Credentials.session = newSession(e, one.Name)
	}
	if one.Namespace == "" || ByVariable("namespace") {
		return nil
	}
	if f := c.Flags().Lookup("namespace"); f != nil && !f.Changed && f.DefValue == e.Namespace && f.DefValue != "" {
		if err := f.Value.Set(one.Namespace); err != nil {
			return err
		}
	}
	e.Namespace = one.Namespace
	return nil
}

// callsNoServer says whether a command needs no context, so that a broken one does not stop
// it.
func callsNoServer(command string) bool {
	first, _, _ := strings.Cut(command, " ")
	return command == "store run" || slices.Contains([]string{"", "serve", "config", "login", "version", "help", "completion", "exit-codes"}, first)
}

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/cmd/portolan/serve/command"
)

// commands returns the commands of the binary; cobra adds completion and help.
func commands(env *environment) []*cobra.Command {
	return []*cobra.Command{
		command.New(env.console()), newStoreCommand(env), newSourceCommand(env),
		newApplyCommand(env), newDiffCommand(env), newGetCommand(env), newDescribeCommand(env), newAnalyzeCommand(env), newDeleteCommand(env), newWaitCommand(env), newAPIResourcesCommand(env),
		newExportCommand(env), newImportCommand(env), newSecretCommand(env),
		newCACommand(env), newTokenCommand(env), newCertificateCommand(env), newUserCommand(env), newAuthCommand(env), newLoginCommand(env), newLogoutCommand(env),
		newHistoryCommand(env), newAuditCommand(env), newRollbackCommand(env),
		newProxyCommand(env), newExplainCommand(env), newBootstrapCommand(env),
		newConfigCommand(env), newUpgradeCommand(env), newVersionCommand(env),
	}
}

// call does something with a client of the server, within --request-timeout.
func (e *environment) call(ctx context.Context, do func(context.Context, *client.Client) error) error {
	return e.callFor(ctx, e.timeout, do)
}

// callFor is like call with another timeout; 0 means no limit.
func (e *environment) callFor(ctx context.Context, timeout time.Duration, do func(context.Context, *client.Client) error) error {
	e = e.reaching(ctx)
	token, err := e.credentials.bearer()
	if err != nil {
		return err
	}
	by, err := e.files.client(e.server)
	if err != nil {
		return err
	}
	c, err := client.New(e.server, client.Options{
		HTTP: by, Token: token, Tokens: e.credentials.source(),
		UserAgent: agent(version, e.command, e.user), Patience: e.patience, Waiting: e.printWaiting,
	})
	if err != nil {
		return exit.With(exit.Usage, fmt.Errorf("--server: %w", err))
	}
	defer c.Close()
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	return e.explainCredentials(e.explainTimeout(do(ctx, c)))
}

// printWaiting prints that the command waits for a server that may be starting.
func (e *environment) printWaiting() {
	fmt.Fprintf(e.stderr, "No server listens at %s yet; waiting up to %s for it.\n", e.server, e.patience)
}

// oneOf returns an error if the value of a flag is none of the known ones. An empty value
// means the default.
func oneOf(flag, value string, known ...string) error {
	for _, k := range known {
		if value == k {
			return nil
		}
	}
	known = slices.DeleteFunc(slices.Clone(known), func(k string) bool { return k == "" })
	return exit.With(exit.Usage, fmt.Errorf("%s %q: use %s", flag, value, alternatives(known)))
}

// alternatives formats words as "a, b or c".
func alternatives(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// registerOutput adds -o to a command, which then refuses every value but the known ones. The
// first is the default; "" is the form for people.
func registerOutput(c *cobra.Command, output *string, known ...string) {
	forms := known
	if forms[0] == "" {
		forms = forms[1:]
	}
	c.Flags().StringVarP(output, "output", "o", known[0], "form of the output: "+alternatives(forms))
	completeOutput(c, forms...)
	c.PreRunE = func(*cobra.Command, []string) error { return oneOf("-o", *output, known...) }
}

// completeOutput offers the values of -o.
func completeOutput(c *cobra.Command, values ...string) {
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// console is what the command serve gets from the command line.
func (e *environment) console() command.Console {
	return command.Console{
		Stderr: e.stderr, Version: version, Bearer: func() (string, error) { return e.credentials.bearer() },
		CA: func() string { return e.files.ca }, Agent: func() string { return agent(version, e.command, e.user) },
	}
}

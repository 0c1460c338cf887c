package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/help"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// environment holds the inputs and outputs of a command.
type environment struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	now            func() time.Time
	schemas        schema.Set // the kinds that commands handle
	terminal       bool       // whether there is a user to ask
	user           string     // the local user who runs the program
	command        string     // the command that runs, such as "apply"
	server         string     // --server
	context        string     // --context
	files          clientFiles
	namespace      string        // namespace of objects and commands that name none
	timeout        time.Duration // --request-timeout
	credentials    proof
	hidden         []string      // global flags that the command replaces by its own
	patience       time.Duration // how long a command waits for a server that refuses connections
}

// run executes a command line and returns the exit code. Errors go to stderr.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	env := &environment{
		stdin: stdin, stdout: stdout, stderr: stderr, now: time.Now, schemas: schema.Pilot(),
		terminal: isTerminal(stdin) && isTerminal(stderr), user: localUser(), patience: 5 * time.Second,
	}
	root := newRootCommand(env)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil, exit.IsQuiet(err):
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		fmt.Fprintln(stderr, "portolan: interrupted")
	default:
		fmt.Fprintf(stderr, "portolan: %s\n", strings.TrimSpace(errorText(err)))
	}
	return exit.Of(err)
}

// isTerminal says whether a stream is a terminal.
func isTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

func newRootCommand(env *environment) *cobra.Command {
	root := &cobra.Command{
		Use:   "portolan",
		Short: "A service mesh control plane for machines: Istio's API, kept in etcd, served as xDS",
		Long: `Portolan is a service mesh control plane for virtual machines and bare metal:
Istio's API, kept in etcd, served as xDS to Envoy. No Kubernetes.

  portolan serve                       run the control plane
  portolan apply -f shop/              put configuration into it, as one change
  portolan get virtualservices -A      see what it has
  portolan wait vs/reviews -n shop     wait until the proxies have taken it
  portolan proxy status                see what each of them has
  portolan describe vs/shop/reviews    see what became of an object, and what refers to it
  portolan analyze                     find what has no effect, contends or leads nowhere
  portolan history vs/reviews -n shop  see who changed an object, and go back with rollback

PORTOLAN_NAMESPACE is the namespace where a command needs one and has no -n. Contexts
keep servers and namespaces by name: portolan config.
Scripts can tell by the exit code what happened: portolan help exit-codes.`,
		PersistentPreRunE: func(c *cobra.Command, _ []string) error {
			_, env.command, _ = strings.Cut(c.CommandPath(), " ")
			env.hidden = hiddenFlags(c)
			if callsNoServer(env.command) {
				return nil
			}
			return env.useContext(c)
		},
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetVersionTemplate(versionLine())
	root.Flags().Bool("version", false, "print the version of this binary") // without a shorthand
	root.SetIn(env.stdin)
	root.SetOut(env.stdout)
	root.SetErr(env.stderr)
	env.namespace = cmp.Or(os.Getenv("PORTOLAN_NAMESPACE"), "default")
	server := cmp.Or(os.Getenv("PORTOLAN_SERVER"), "http://127.0.0.1:15080")
	root.PersistentFlags().StringVar(&env.server, "server", server, "URL of the config API, or unix:FILE for its socket; several servers of one store, with commas between them, are tried in order; the default is $PORTOLAN_SERVER where it is set")
	root.PersistentFlags().StringVar(&env.context, "context", "", "the context to use (portolan config); the default is $PORTOLAN_CONTEXT, or else the current one")
	env.files.register(root.PersistentFlags())
	env.credentials.register(root.PersistentFlags())
	root.PersistentFlags().DurationVar(&env.timeout, "request-timeout", 30*time.Second, "how long a command waits for the server; 0 is without limit")
	root.SetFlagErrorFunc(flagError)
	root.SetUsageFunc(help.WriteUsage)
	root.AddCommand(commands(env)...)
	root.AddCommand(&cobra.Command{Use: "exit-codes", Short: "What the exit codes mean", Long: exit.Help})
	root.SetHelpCommand(newHelpCommand())
	root.InitDefaultCompletionCmd() // so that it is refined, too
	completeFlags(env, root)
	refineUsage(root)
	addExamples(root)
	return root
}

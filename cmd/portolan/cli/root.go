package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/help"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/generate/envoyfilter"
)

// Program is what makes a command line whole.
type Program struct {
	Version  string
	Commands func(*Environment) []*cobra.Command
	// Examples has the examples of commands, by the path of the command. Most commands have
	// theirs beside their description.
	Examples map[string]string
	// Revisions completes the values of flags that are a revision of the store.
	Revisions func(*Environment) cobra.CompletionFunc
}

// Run executes a command line and returns the exit code. Errors go to stderr.
func Run(ctx context.Context, p Program, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	env := &Environment{
		Version: p.Version,
		Stdin:   stdin, Stdout: stdout, Stderr: stderr, Now: time.Now, Schemas: envoyfilter.Kinds(schema.Pilot()),
		Terminal: isTerminal(stdin) && isTerminal(stderr), user: LocalUser(), Patience: 5 * time.Second,
		Live: Live{Shown: isTerminal(stderr) && os.Getenv("TERM") != "dumb", After: time.Second},
	}
	root := NewRootCommand(env, p)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil, exit.IsQuiet(err):
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		fmt.Fprintln(stderr, bad.on(stderr, "portolan:"), "interrupted")
	default:
		fmt.Fprintf(stderr, "%s %s\n", bad.on(stderr, "portolan:"), exit.Text(err))
	}
	return exit.Of(err)
}

func NewRootCommand(env *Environment, p Program) *cobra.Command {
	env.warned = &sync.Map{}
	root := &cobra.Command{
		Use:   "portolan",
		Short: "A service mesh control plane for machines: Istio's API, kept in etcd, served as xDS",
		Long: `Portolan is a service mesh control plane for virtual machines and bare metal:
Istio's API, kept in etcd, served as xDS to Envoy. No Kubernetes.

  portolan serve                       run the control plane
  portolan apply -f shop/              put configuration into it, as one change
  portolan get virtualservices -A      see what it has
  portolan edit vs/reviews -n shop     change it in an editor; also label, annotate, patch
  portolan wait vs/reviews -n shop     wait until the proxies have taken it
  portolan proxy status                see what each of them has
  portolan describe vs/shop/reviews    see what became of an object, and what refers to it
  portolan analyze                     find what has no effect, contends or leads nowhere
  portolan explain request             see where a request goes, and why it would fail
  portolan authz check                 see whether policies allow a request, and which decides
  portolan history vs/reviews -n shop  see who changed an object, and go back with rollback

PORTOLAN_NAMESPACE is the namespace where a command needs one and has no -n. Contexts
keep servers and namespaces by name: portolan config.
Scripts can tell by the exit code what happened: portolan help exit-codes.
NO_COLOR=1 leaves the colours out that a terminal gets.`,
		PersistentPreRunE: func(c *cobra.Command, _ []string) error {
			_, env.command, _ = strings.Cut(c.CommandPath(), " ")
			env.hidden = hiddenFlags(c)
			if callsNoServer(env.command) {
				return nil
			}
			return env.UseContext(c)
		},
		Version:       env.Version,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetVersionTemplate(versionLine(env.Version))
	root.Flags().Bool("version", false, "print the version of this binary") // without a shorthand
	root.SetIn(env.Stdin)
	root.SetOut(env.Stdout)
	root.SetErr(env.Stderr)
	env.Namespace = cmp.Or(os.Getenv("PORTOLAN_NAMESPACE"), "default")
	server := cmp.Or(os.Getenv("PORTOLAN_SERVER"), "http://127.0.0.1:15080")
	root.PersistentFlags().StringVar(&env.Server, "server", server, "URL of the config API, or unix:FILE for its socket; several servers of one store, with commas between them, are tried in order; the default is $PORTOLAN_SERVER where it is set")
	root.PersistentFlags().StringVar(&env.Context, "context", "", "the context to use (portolan config); the default is $PORTOLAN_CONTEXT, or else the current one")
	env.Files.register(root.PersistentFlags())
	env.Credentials.register(root.PersistentFlags())
	root.PersistentFlags().DurationVar(&env.Timeout, "request-timeout", 30*time.Second, "how long a command waits for the server; 0 is without limit")
	root.SetUsageFunc(help.WriteUsage)
	root.AddCommand(p.Commands(env)...)
	root.AddCommand(newVersionCommand(env), &cobra.Command{Use: "exit-codes", Short: "What the exit codes mean", Long: exit.Help})
	root.SetHelpCommand(help.NewCommand())
	root.InitDefaultCompletionCmd() // so that it is refined, too
	completeFlags(env, root, p.Revisions)
	help.Refine(root)
	addExamples(root, p.Examples)
	return root
}

// addExamples gives commands without examples theirs.
func addExamples(c *cobra.Command, examples map[string]string) {
	if text, ok := examples[c.CommandPath()]; ok && c.Example == "" {
		c.Example = text
	}
	for _, sub := range c.Commands() {
		addExamples(sub, examples)
	}
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/portolan-mesh/portolan/cmd/portolan-agent/config"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/help"
)

// version is set by the linker.
var version = "unknown"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process
	os.Exit(execute(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// environment has what all commands share.
type environment struct {
	stdout, stderr io.Writer
	config         string // --config
}

func (e *environment) agent() string { return "portolan-agent/" + version }

func (e *environment) logger() *slog.Logger { return slog.New(slog.NewTextHandler(e.stderr, nil)) }

// execute runs a command line and returns the exit code.
func execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	env := &environment{stdout: stdout, stderr: stderr}
	root := newRoot(env)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil, exit.IsQuiet(err):
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		fmt.Fprintln(stderr, "portolan-agent: interrupted")
	default:
		fmt.Fprintf(stderr, "portolan-agent: %s\n", exit.Text(err))
	}
	return exit.Of(err)
}

// exitCodes is the help text about exit codes, which are some of those of portolan.
const exitCodes = `Exit codes of all commands:

   0  done
   1  failure
   3  requests or connections of others are still open (drain)
  64  the command line cannot be understood
  65  the file, the invitation or a flag cannot be used, or the server refuses it
  69  the agent or the server cannot be reached
  77  the server refuses who asks: an invitation is used up, expired or unknown
  79  something is at fault (doctor)`

func newRoot(env *environment) *cobra.Command {
	root := &cobra.Command{
		Use:   "portolan-agent",
		Short: "Join this machine to the mesh, and keep its proxy supplied",
		Long: `Join this machine to the mesh, and keep its proxy supplied.

  portolan-agent join INVITATION   get the machine's certificate; portolan machine invite prints the whole line
  portolan-agent run               renew it, relay the configuration, run the Envoy
  portolan-agent status            see what the running agent has
  portolan-agent doctor            see what is wrong, and what to do
  portolan-agent leave             take the machine out of the mesh

Scripts can tell by the exit code what happened: portolan-agent help exit-codes.`,
		Version: version, SilenceErrors: true, SilenceUsage: true,
	}
	line := fmt.Sprintf("portolan-agent %s (%s %s/%s)\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	// A template for the version would make the linker keep every method: text/template calls them
	// by name.
	root.Flags().Bool("version", false, "print the version of this binary")
	root.PersistentFlags().StringVar(&env.config, "config", config.DefaultFile, "file of the agent")
	root.SetOut(env.stdout)
	root.SetErr(env.stderr)
	root.SetUsageFunc(help.WriteUsage)
	root.AddCommand(newJoin(env), newRun(env), newStatus(env), newRestartEnvoy(env), newCapture(env), newDNS(env), newDrain(env), newResume(env), newDoctor(env), newLeave(env), &cobra.Command{
		Use: "version", Short: "Print the version of this binary", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprint(env.stdout, line)
			return err
		},
	}, &cobra.Command{Use: "exit-codes", Short: "What the exit codes mean", Long: exitCodes})
	root.SetHelpCommand(help.NewCommand())
	root.InitDefaultCompletionCmd() // so that it is refined, too
	help.Refine(root)
	return root
}

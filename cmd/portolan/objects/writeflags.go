package objects

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/batch"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/storage/config"
)

// writeOutputs are the values of -o of the commands that change objects.
var writeOutputs = []string{"table", "json", "yaml", "name"}

// writeFlags holds the flags of all commands that change objects: for a dry run, the message
// for the history, the output, and the wait for proxies.
type writeFlags struct {
	dry    dryRun
	why    message
	output string
	wait   bool
	waits  waitFlags
}

func (w *writeFlags) register(c *cobra.Command) {
	w.dry.register(c)
	w.why.register(c)
	f := c.Flags()
	cli.RegisterOutput(c, &w.output, writeOutputs...)
	f.BoolVar(&w.wait, "wait", false, "wait until the proxies have taken it")
	w.waits.register(c)
}

func (w *writeFlags) check(c *cobra.Command) error {
	return cmp.Or(w.dry.check(), w.why.check(), w.checkWait(c.Flags().Changed))
}

func (w *writeFlags) checkWait(given func(flag string) bool) error {
	if w.wait && w.dry.mode != dryRunNone {
		return exit.With(exit.Usage, errors.New("--wait waits for a change that is made: leave --dry-run out"))
	}
	return cmp.Or(w.waits.only(w.wait, given, "; --request-timeout is how long the change itself may take"), w.waits.check())
}

// send sends a batch to the server, to apply it or to try it and preview its effect. what is in it
// is shown while it takes long.
func (w *writeFlags) send(ctx context.Context, env *environment, c *client.Client, b batch.Batch, what string) (*batch.Result, error) {
	told := env.Progress()
	told.Tell(what + ": waiting for the server")
	defer told.Clear()
	if w.dry.mode == dryRunServer {
		return c.Try(ctx, b, w.dry.preview())
	}
	return c.Apply(ctx, b)
}

// report prints the server's warnings and the outcome for each object; after a dry run, what
// would change. Notes add to the line of an object by its index; they may be nil.
func (w *writeFlags) report(env *environment, documents []config.Document, result *batch.Result, notes map[int]string) error {
	env.Warn(result.Warnings, result.Infos...)
	if len(result.Results) != len(documents) {
		return fmt.Errorf("the server at %s answered %d outcomes for %d objects: is it a Portolan of another version?", env.Server, len(result.Results), len(documents))
	}
	switch w.output {
	case "json", "yaml":
		return cli.WriteDocument(env.Stdout, w.output, result)
	case "name":
		for _, d := range documents {
			fmt.Fprintln(env.Stdout, d.Config.Key())
		}
		return nil
	}
	rows := make([][]string, len(documents))
	for i, r := range result.Results {
		rows[i] = w.dry.row(documents[i], r.Outcome, "rev "+r.ResourceVersion)
		said := slices.DeleteFunc([]string{notes[i], cli.Plain(r.Note)}, func(s string) bool { return s == "" })
		if len(said) > 0 {
			rows[i] = append(rows[i], strings.Join(said, "; "))
		}
	}
	if err := cli.WriteTable(env.Stdout, rows); err != nil {
		return err
	}
	return env.printEffect(documents, result)
}

// reportValid prints that the files are valid, as far as that shows without a server.
func (w *writeFlags) reportValid(env *environment, m *manifest) error {
	result := &batch.Result{
		TypeMeta: metav1.TypeMeta{Kind: batch.ResultKind, APIVersion: batch.APIVersion},
		Results: cli.MapSlice(m.documents, func(d config.Document) batch.Outcome {
			return batch.Outcome{Kind: d.Config.Kind, Namespace: d.Config.Namespace, Name: d.Config.Name, Outcome: "valid"}
		}),
		Warnings: m.warnings,
	}
	return w.report(env, m.documents, result, nil)
}

// await waits for proxies if --wait is set. If the output is for programs, it reports on them
// on stderr.
func (w *writeFlags) await(ctx context.Context, env *environment, result *batch.Result) error {
	result = ofMeshOnly(result)
	if !w.wait || len(result.Results) == 0 {
		return nil
	}
	if w.output != "table" {
		env = env.aside()
	}
	return env.waitForBatch(ctx, result, w.waits)
}

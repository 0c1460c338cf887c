package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/portolan-mesh/portolan/cache/rest/batch"
	"github.com/portolan-mesh/portolan/cache/rest/client"
	"github.com/portolan-mesh/portolan/storage/config"
)

func newApplyCommand(env *environment) *cobra.Command {
	var files fileFlags
	c := &cobra.Command{
		Use:   "apply -f FILE|DIR|-",
		Short: "Create or change objects, all of them as one change",
		Long: `Create or change objects: all those of the files as one change, which proxies
see whole, or, where one of them has a fault, none.

What a file says replaces the spec, the labels and the annotations of an object.
A metadata.resourceVersion in it must be that of the stored object (exit code 75
where it is not); without one, the last write wins.`,
		Example: `  portolan apply -f shop.yaml
  portolan apply -f shop/ -R -n shop
  portolan get vs/reviews -n shop -o yaml | sed s/v1/v2/ | portolan apply -f -`,
		Args: filesOnly,
		RunE: func(c *cobra.Command, _ []string) error {
			if len(files.names) == 0 {
				return usageError{errors.New("name what to apply: -f FILE, -f DIR, or -f - for stdin")}
			}
			return apply(c.Context(), env, &files)
		},
	}
	files.register(c, "apply")
	return c
}

// filesOnly refuses arguments, which are files without -f as a rule.
func filesOnly(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s: name files with -f", strings.Join(args, " "))
	}
	return nil
}

func apply(ctx context.Context, env *environment, files *fileFlags) error {
	m, err := files.read(env.stdin)
	if err != nil {
		return err
	}
	m.validate()
	if err := m.err("applied"); err != nil {
		return err
	}
	operations := make([]batch.Operation, len(m.documents))
	for i, d := range m.documents {
		if operations[i], err = batch.Write(batch.Apply, d.Config); err != nil {
			return dataError{d.Fault("", err.Error())}
		}
	}
	return env.call(ctx, func(ctx context.Context, c *client.Client) error {
		result, err := c.Apply(ctx, batch.New(operations...))
		if err != nil {
			return refused(err, "applied", m.documents)
		}
		return env.printOutcomes(m.documents, result)
	})
}

// printOutcomes tells what became of each object, and the server's warnings.
func (e *environment) printOutcomes(documents []config.Document, result *batch.Result) error {
	warned := map[string]bool{}
	for _, w := range result.Warnings {
		if !warned[w] {
			warned[w] = true
			fmt.Fprintf(e.stderr, "Warning: %s\n", w)
		}
	}
	if len(result.Results) != len(documents) {
		return fmt.Errorf("the server at %s answered %d outcomes for %d objects: is it a Portolan of another version?", e.server, len(result.Results), len(documents))
	}
	rows := make([][]string, len(documents))
	for i, r := range result.Results {
		rows[i] = []string{documents[i].Config.Key().String(), r.Outcome, "rev " + r.ResourceVersion}
	}
	return writeTable(e.stdout, rows)
}

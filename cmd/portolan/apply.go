package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/portolan-mesh/portolan/cache/rest/batch"
	"github.com/portolan-mesh/portolan/cache/rest/client"
	"github.com/portolan-mesh/portolan/storage/config"
)

type applyOptions struct {
	verb   batch.Verb // Apply or Restore
	files  fileFlags
	prune  pruneFlags
	dry    dryRun
	why    message
	chunks int // 0 is all as one change
	wait   bool
	waits  waitFlags
}

func newApplyCommand(env *environment) *cobra.Command {
	o := applyOptions{verb: batch.Apply}
	c := &cobra.Command{
		Use: "apply -f FILE|DIR|-", SuggestFor: []string{"create", "edit", "patch", "replace"},
		Short: "Create or change objects, all of them as one change",
		Long: `Create or change objects: all those of the files as one change, which proxies
see whole, or, where one of them has a fault, none.

What a file says replaces the spec, the labels and the annotations of an object.
A metadata.resourceVersion in it must be that of the stored object (exit code 75
where it is not); without one, the last write wins.

--dry-run=server says what would become of each object, with the errors that the
apply would have, and changes nothing; --dry-run=client reads and validates the
files and needs no server.

--wait waits until the proxies have taken the change; in parts, part by part.` + pruneHelp + chunksHelp + waitHelp,
		Example: `  portolan apply -f shop.yaml
  portolan apply -f shop/ --dry-run=server
  portolan apply -f shop/ --wait
  portolan apply -f shop/ -R -n shop
  portolan apply -f shop/ --prune -l app=shop
  portolan get vs/reviews -n shop -o yaml | sed s/v1/v2/ | portolan apply -f -`,
		Args: filesOnly,
		RunE: func(c *cobra.Command, _ []string) error {
			if len(o.files.names) == 0 {
				return usageError{errors.New("name what to apply: -f FILE, -f DIR, or -f - for stdin")}
			}
			if err := cmp.Or(o.dry.check(), o.why.check()); err != nil {
				return err
			}
			if err := o.prune.check(o.dry); err != nil {
				return err
			}
			if o.chunks < 0 {
				return usageError{fmt.Errorf("--chunks %d: give the number of objects of a part, from 1 on", o.chunks)}
			}
			if err := o.checkWait(c.Flags().Changed); err != nil {
				return err
			}
			return o.run(c.Context(), env)
		},
	}
	c.Flags().BoolVar(&o.wait, "wait", false, "wait until the proxies have taken it")
	o.waits.register(c)
	o.files.register(c, "apply")
	o.dry.register(c)
	o.why.register(c)
	o.prune.register(c)
	o.registerChunks(c)
	return c
}

func (o *applyOptions) registerChunks(c *cobra.Command) {
	c.Flags().IntVar(&o.chunks, "chunks", 0, c.Name()+" parts of at most this many objects, each as a change of its own; 0 is all as one")
}

func (o *applyOptions) checkWait(given func(flag string) bool) error {
	if o.wait && o.dry != dryRunNone {
		return usageError{errors.New("--wait is for what is applied: leave --dry-run out")}
	}
	for _, flag := range []string{"timeout", "threshold"} {
		if given(flag) && !o.wait {
			return usageError{fmt.Errorf("--%s is for --wait: give both or neither; --request-timeout is how long the apply itself may take", flag)}
		}
	}
	return o.waits.check()
}

// filesOnly refuses arguments, which are files without -f as a rule.
func filesOnly(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s: name files with -f", strings.Join(args, " "))
	}
	return nil
}

func (o *applyOptions) run(ctx context.Context, env *environment) error {
	m, err := o.files.read(env.stdin)
	if err != nil {
		return err
	}
	m.validate()
	o.prune.demand(m)
	if err := m.err("applied"); err != nil {
		return err
	}
	if o.dry == dryRunClient {
		return env.printValid(m)
	}
	operations := make([]batch.Operation, len(m.documents))
	for i, d := range m.documents {
		if o.files.exported { // of another store
			d.Config.ResourceVersion, d.Config.UID, d.Config.Generation, d.Config.Status = "", "", 0, nil
		}
		if operations[i], err = batch.Write(o.verb, d.Config); err != nil {
			return dataError{d.Fault("", err.Error())}
		}
	}
	wanted := change{m.documents, operations}
	if o.chunks == 0 {
		var result *batch.Result
		err = env.call(ctx, func(ctx context.Context, c *client.Client) (err error) {
			result, err = o.send(ctx, env, c, m, wanted)
			return err
		})
		if err != nil {
			return err
		}
		return o.await(ctx, env, result)
	}
	var all change
	err = env.call(ctx, func(ctx context.Context, c *client.Client) (err error) {
		all, err = o.complete(ctx, c, m, wanted)
		return err
	})
	if err != nil {
		return err
	}
	return o.sendParts(ctx, env, all)
}

// await waits for proxies where that is asked for.
func (o *applyOptions) await(ctx context.Context, env *environment, result *batch.Result) error {
	if !o.wait {
		return nil
	}
	return env.waitForBatch(ctx, result, o.waits)
}

// send applies the documents, and deletes what is superfluous beside them. What
// was listed as superfluous and is gone by then is listed again.
func (o *applyOptions) send(ctx context.Context, env *environment, c *client.Client, m *manifest, wanted change) (*batch.Result, error) {
	for {
		all, err := o.complete(ctx, c, m, wanted)
		if err != nil {
			return nil, err
		}
		result, err := o.dry.send(ctx, c, o.why.about(all.operations))
		if err == nil {
			return result, env.printOutcomes(all.documents, result, o.dry)
		}
		if _, gone := existing(err, all.documents); !gone || !o.prune.enabled {
			return nil, hintChunks(refused(err, "applied", all.documents))
		}
	}
}

// complete adds the deletions of what is superfluous.
func (o *applyOptions) complete(ctx context.Context, c *client.Client, m *manifest, wanted change) (change, error) {
	more, err := o.prune.superfluous(ctx, c, m, o.files.namespace)
	if err != nil {
		return change{}, err
	}
	all := change{slices.Clip(wanted.documents), slices.Clip(wanted.operations)}
	for _, s := range more {
		all.documents = append(all.documents, s.document())
		all.operations = append(all.operations, batch.Remove(s.key, s.object.GetResourceVersion()))
	}
	return all, nil
}

// printOutcomes tells what became of each object, and the server's warnings.
func (e *environment) printOutcomes(documents []config.Document, result *batch.Result, dry dryRun) error {
	e.warn(result.Warnings)
	if len(result.Results) != len(documents) {
		return fmt.Errorf("the server at %s answered %d outcomes for %d objects: is it a Portolan of another version?", e.server, len(result.Results), len(documents))
	}
	rows := make([][]string, len(documents))
	for i, r := range result.Results {
		rows[i] = dry.row(documents[i], r.Outcome, "rev "+r.ResourceVersion)
	}
	return writeTable(e.stdout, rows)
}

// printValid tells that the files are sound, as far as can be told without a
// server.
func (e *environment) printValid(m *manifest) error {
	e.warn(m.warnings)
	rows := make([][]string, len(m.documents))
	for i, d := range m.documents {
		rows[i] = dryRunClient.row(d, "valid")
	}
	return writeTable(e.stdout, rows)
}

// warn prints warnings, each once.
func (e *environment) warn(warnings []string) {
	warned := map[string]bool{}
	for _, w := range warnings {
		if !warned[w] {
			warned[w] = true
			fmt.Fprintf(e.stderr, "Warning: %s\n", w)
		}
	}
}

package objects

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/batch"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
)

type applyOptions struct {
	writeFlags
	verb   batch.Verb // Apply or Restore
	files  fileFlags
	prune  pruneFlags
	chunks int // objects per change; 0 applies all as one change
	strict string
	force  bool // takes fields from other managers

	serverSide bool
	manager    string // the name under which it applies server-side; empty for the program's

	acceptUnserved bool // import accepts security settings that have no effect
}

func newApplyCommand(env *environment) *cobra.Command {
	o := applyOptions{verb: batch.Apply}
	c := &cobra.Command{
		Use:   "apply (-f FILE|DIR|URL|- | -k DIR)",
		Short: "Create or change objects, all of them as one change",
		Long: `Create or change objects: all those of the files as one change, which proxies
see whole, or, where one of them has a fault, none.

What a file says replaces the spec, the labels and the annotations of an object.
-f takes a URL too, of http or https: up to 32 MiB, within 30 seconds, over at most 5
redirects. -k has a kustomization built first, by kustomize or kubectl, the first that is
in the PATH.

--server-side sets the fields that the files have, and takes away those that the same
manager has applied before and applies no more; fields of others stay, so a file may have
a part of an object. Where it has another value for a field of another manager, apply
stops (exit code 75); --force-conflicts takes these fields. --field-manager names the
manager, else it is portolan, which what was applied without --server-side belongs to.
Once somebody applies an object server-side, as Argo CD does, apply without the flag
leaves the fields of others, too.

A metadata.resourceVersion in it must be that of the stored object (exit code 75
where it is not); without one, the last write wins.

--dry-run=server changes nothing. It shows the errors and warnings that the apply
would have, how each object would differ, and which proxies are concerned; with
--xds, which of their resources too. --dry-run=client reads and validates the files
and needs no server.

--wait waits until the proxies have taken the change; in parts, part by part.` + storesHelp + pruneHelp + chunksHelp + waitHelp,
		Example: `  portolan apply -f shop.yaml
  portolan apply -f shop/ --dry-run=server --xds
  portolan apply -f shop/ --wait
  portolan apply -f shop/ -R -n shop
  portolan apply -k overlays/prod --dry-run=server
  portolan apply -f shop.yaml --server-side --field-manager shop-team
  portolan apply -f https://example.com/mesh/shop.yaml
  portolan apply -f shop/ --prune -l app=shop
  portolan get vs/reviews -n shop -o yaml | sed s/v1/v2/ | portolan apply -f -`,
		Args: filesOnly,
		RunE: func(c *cobra.Command, _ []string) error {
			if o.files.none() {
				return exit.With(exit.Usage, errors.New("name what to apply: -f FILE, -f DIR, -f URL, -k DIR, or -f - for stdin"))
			}
			if err := cmp.Or(o.check(c), o.prune.check(env.Schemas, o.dry.mode), o.checkChunks(), o.checkStrict(), o.checkServerSide(c)); err != nil {
				return err
			}
			return o.run(c.Context(), env)
		},
	}
	o.writeFlags.register(c)
	o.files.register(c, "apply")
	o.prune.register(c)
	cli.RegisterYes(c, &o.prune.yes)
	o.registerChunks(c)
	c.Flags().StringVar(&o.strict, "strict", "", "refuse what would have errors or warnings, as portolan analyze calls them; --strict=errors refuses errors alone: what cannot work, such as a host, subset or gateway that is not there")
	c.Flags().Lookup("strict").NoOptDefVal = "warnings"
	c.Flags().BoolVar(&o.force, "force-conflicts", false, "take fields from those who have applied another value server-side")
	c.Flags().BoolVar(&o.serverSide, "server-side", false, "set only the fields that the files have, and leave those of other managers")
	c.Flags().StringVar(&o.manager, "field-manager", "", "with --server-side, the manager of the fields (default portolan)")
	return c
}

func (o *applyOptions) registerChunks(c *cobra.Command) {
	c.Flags().IntVar(&o.chunks, "chunks", 0, c.Name()+" parts of at most this many objects, each as a change of its own; 0 is all as one")
}

func (o *applyOptions) checkChunks() error {
	if o.chunks < 0 {
		return exit.With(exit.Usage, fmt.Errorf("--chunks %d: give the number of objects of a part, from 1 on", o.chunks))
	}
	return nil
}

func (o *applyOptions) checkStrict() error {
	if o.strict == "" {
		return nil
	}
	return cli.OneOf("--strict", o.strict, "warnings", "errors")
}

func (o *applyOptions) checkServerSide(c *cobra.Command) error {
	switch {
	case c.Flags().Changed("field-manager") && !o.serverSide:
		return exit.With(exit.Usage, errors.New("--field-manager names who applies server-side: add --server-side, or leave it out"))
	case c.Flags().Changed("field-manager") && o.manager == "":
		return exit.With(exit.Usage, errors.New("--field-manager is empty: name a manager, such as shop-team"))
	case o.serverSide && o.dry.mode == dryRunClient:
		return exit.With(exit.Usage, errors.New("--dry-run=client: the server alone knows what a server-side apply makes: use --dry-run=server"))
	}
	return nil
}

// filesOnly refuses arguments, since they mostly are files without -f.
func filesOnly(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s: name files with -f", strings.Join(args, " "))
	}
	return nil
}

func (o *applyOptions) run(ctx context.Context, env *environment) error {
	o.files.later = !o.judgesFirst()
	m, err := o.files.read(ctx, env)
	if err != nil {
		return err
	}
	if o.judgesFirst() || m.faults.ErrorOrNil() != nil {
		if err := o.faults(m); err != nil {
			return err
		}
	}
	if o.dry.mode == dryRunClient {
		return o.reportValid(env, m)
	}
	if o.files.exported { // exported by another store
		for _, d := range m.documents {
			d.Config.ResourceVersion, d.Config.UID, d.Config.Generation, d.Config.Status = "", "", 0, healthAlone(d.Config)
		}
	}
	operations, err := m.operations(o.verb)
	if err != nil {
		return err
	}
	if o.dry.mode == dryRunNone {
		if err := o.prune.confirm(ctx, env, m, o.files.namespace); err != nil {
			return err
		}
	}
	wanted := change{m.documents, operations}
	if o.chunks == 0 {
		var result *batch.Result
		err = env.Call(ctx, func(ctx context.Context, c *client.Client) (err error) {
			result, err = o.apply(ctx, env, c, m, wanted)
			return err
		})
		if err != nil && o.files.later && !outcomeUnknown(err) {
			return cmp.Or(o.faults(m), err) // the faults of files are told without a server too
		}
		if err != nil {
			return err
		}
		return o.await(ctx, env, result)
	}
	var all change
	err = env.Call(ctx, func(ctx context.Context, c *client.Client) (err error) {
		all, err = o.complete(ctx, c, m, wanted)
		return err
	})
	if err != nil {
		return err
	}
	return o.sendParts(ctx, env, all)
}

// judgesFirst says whether the command looks for the faults in specs before it asks the server,
// because no server judges all of them at once, or before it is too late. Otherwise the command
// looks for them where the server refuses the objects.
func (o *applyOptions) judgesFirst() bool {
	return o.dry.mode == dryRunClient || o.prune.enabled || o.chunks > 0 || o.files.exported
}

// faults returns all faults of the files; nil if there are none.
func (o *applyOptions) faults(m *manifest) error {
	m.readSpecs()
	if !o.serverSide { // a file may have a part of an object
		m.validate()
	}
	if o.files.exported && !o.acceptUnserved {
		m.secure()
	}
	o.prune.demand(m)
	return m.err("applied")
}

// apply applies the documents, and deletes superfluous objects. If a superfluous object is
// gone by then, apply lists them anew and tries again.
func (o *applyOptions) apply(ctx context.Context, env *environment, c *client.Client, m *manifest, wanted change) (*batch.Result, error) {
	for {
		all, err := o.complete(ctx, c, m, wanted)
		if err != nil {
			return nil, err
		}
		documents, result, err := o.deliver(ctx, env, c, all, "applied", o.batch)
		if err == nil {
			return result, o.report(env, documents, result, nil)
		}
		if _, gone := existing(err, all.documents); !gone || !o.prune.enabled {
			return nil, hintForce(hintImport(hintChunks(err), cli.CausesOf(err)))
		}
	}
}

// hintForce adds a hint to the error that other managers own fields of the files.
func hintForce(err error) error {
	if slices.ContainsFunc(cli.CausesOf(err), cli.IsManaged) {
		return fmt.Errorf("%w\n--force-conflicts takes the fields; or leave them out of the file", err)
	}
	return err
}

func (o *applyOptions) batch(operations []batch.Operation) batch.Batch {
	b := o.why.about(operations)
	b.Strict, b.Force, b.ServerSide, b.FieldManager = strings.TrimSuffix(o.strict, "s"), o.force, o.serverSide, o.manager
	return b
}

// complete adds the deletions of superfluous objects to a change.
func (o *applyOptions) complete(ctx context.Context, c *client.Client, m *manifest, wanted change) (change, error) {
	more, err := o.prune.superfluous(ctx, c, m, o.files.namespace)
	if err = cmp.Or(err, o.prune.answered(more)); err != nil {
		return change{}, err
	}
	all := change{slices.Clip(wanted.documents), slices.Clip(wanted.operations)}
	for _, s := range more {
		all.documents = append(all.documents, s.document())
		all.operations = append(all.operations, batch.Remove(s.key, s.object.GetResourceVersion()))
	}
	return all, nil
}

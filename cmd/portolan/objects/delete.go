package objects

import (
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
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/admin/effect"
)

type deleteOptions struct {
	writeFlags
	files          fileFlags
	among          among
	ignoreNotFound bool
	yes            bool
}

func newDeleteCommand(env *environment) *cobra.Command {
	var o deleteOptions
	c := &cobra.Command{
		Use: "delete (-f FILE|DIR|URL|- | -k DIR | KIND NAME... | KIND/NAME... | KIND --all | KIND -l LABELS)", SuggestFor: []string{"remove", "rm"},
		Short: "Delete objects, all of them as one change",
		Long: `Delete objects, named by files or by arguments: all of them as one change, or,
where one of them does not exist, none.

A metadata.resourceVersion in a file must be that of the stored object.

--all deletes all objects of a kind in the namespace, or with -A in all; -l those with
these labels. It names those of other sources, which stay. On a terminal it first names what it would delete, and asks; --yes does
without. An object that changes meanwhile stays, and so does everything else (exit code 75).

It first tries the delete on the server. Where an object that stays refers to one that
would go, it names both, asks on a terminal, and elsewhere refuses without --yes. With
--yes it does not try first.

--dry-run=server changes nothing. It shows what would be deleted, with the errors and
warnings that the delete would have, and which proxies are concerned; with --xds, which
of their resources too. --dry-run=client only reads the files or arguments.

A namespace goes with all that is in it: the command says what that is, and asks.

--wait waits until the proxies have taken it.` + waitHelp,
		Example: `  portolan delete -f shop/
  portolan delete vs reviews ratings -n shop
  portolan delete vs/reviews dr/reviews -n shop --ignore-not-found
  portolan delete dr/reviews -n shop --dry-run=server --xds
  portolan delete se -n shop --all --yes
  portolan delete vs,dr -n shop -l app=reviews --dry-run=server
  portolan delete namespace shop`,
		ValidArgsFunction: completeBeside(env),
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.check(c); err != nil {
				return err
			}
			if names := namespacesNamed(env, args); len(names) > 0 {
				return o.deleteNamespaces(c.Context(), env, names)
			}
			documents, err := o.documents(c.Context(), env, args)
			if err != nil || len(documents) == 0 {
				return err
			}
			return o.run(c.Context(), env, documents)
		},
	}
	o.files.register(c, "delete")
	o.among.register(c, "delete")
	o.writeFlags.register(c)
	cli.RegisterYes(c, &o.yes)
	c.Flags().BoolVar(&o.ignoreNotFound, "ignore-not-found", false, "take objects that do not exist for deleted")
	return c
}

// Objects named by arguments have no file.
func (o *deleteOptions) documents(ctx context.Context, env *environment, args []string) ([]config.Document, error) {
	switch {
	case len(args) == 0 && o.files.none():
		return nil, exit.With(exit.Usage, errors.New("name what to delete: KIND NAME, KIND/NAME, or files with -f"))
	case len(args) > 0 && !o.files.none():
		return nil, exit.With(exit.Usage, fmt.Errorf("%s: name objects either by files (-f) or by arguments", args[0]))
	case len(args) > 0:
		selected, err := o.among.choose(env.withSide(), args, o.files.namespace, "delete")
		if err != nil {
			return nil, err
		}
		if len(selected.keys) == 0 {
			return o.listed(ctx, env, selected)
		}
		var documents []config.Document
		for _, key := range selected.keys {
			documents = append(documents, config.Document{Config: &config.Config{
				Meta: config.Meta{GroupVersionKind: key.Kind, Namespace: key.Namespace, Name: key.Name},
			}})
		}
		return documents, nil
	}
	if o.among.asked() {
		return nil, exit.With(exit.Usage, errors.New("--all, -l and -A select among the objects of a kind: name one, and leave the files out"))
	}
	m, err := o.files.read(ctx, env)
	if err != nil {
		return nil, err
	}
	for _, d := range m.documents {
		if d.Config.GroupVersionKind == schema.Namespace {
			m.fault(d.Fault("", "goes with all that is in it: leave it out here, and delete it by portolan delete namespace "+d.Config.Name))
		}
	}
	return m.documents, m.err("deleted")
}

// listed returns the objects that --all or -l selects, each in the version that it has, and asks on
// a terminal whether to delete them. If there are none, it says so.
func (o *deleteOptions) listed(ctx context.Context, env *environment, selected selection) ([]config.Document, error) {
	if o.dry.mode == dryRunClient {
		return nil, exit.With(exit.Usage, errors.New("--dry-run=client: the server alone knows which objects there are: use --dry-run=server"))
	}
	all, err := o.among.read(ctx, env, selected, o.files.namespace, "deleted")
	if err != nil || len(all) == 0 {
		return nil, err
	}
	documents := cli.MapSlice(all, storedOnly.document)
	if o.yes || !env.Terminal || o.dry.mode != dryRunNone {
		return documents, nil
	}
	fmt.Fprintln(env.Stderr, "To be deleted:")
	for _, one := range all {
		fmt.Fprintln(env.Stderr, "  "+one.key.String())
	}
	return documents, env.Confirm(ctx, "Delete "+itOrThese(len(all))+"?", "nothing was deleted")
}

func (o *deleteOptions) run(ctx context.Context, env *environment, documents []config.Document) error {
	if o.dry.mode == dryRunClient {
		return o.reportValid(env, &manifest{documents: documents})
	}
	if !o.yes && o.dry.mode == dryRunNone {
		if err := o.ask(ctx, env, documents); err != nil {
			return err
		}
	}
	documents, result, err := o.remove(ctx, env, documents, func(ctx context.Context, c *client.Client, all change) ([]config.Document, *batch.Result, error) {
		return o.deliver(ctx, env, c, all, "deleted", o.why.about)
	})
	if err != nil || result == nil {
		return err
	}
	if err := o.report(env, documents, result, nil); err != nil {
		return err
	}
	return o.await(ctx, env, result)
}

// ask tries the delete on the server. If other objects refer to the deleted ones, ask lists
// them and asks for confirmation. Objects that the trial does not find are left to the delete
// itself: an unreadable object is only in the store.
func (o *deleteOptions) ask(ctx context.Context, env *environment, documents []config.Document) error {
	trial := *o
	trial.ignoreNotFound = true
	documents, result, err := trial.remove(ctx, env, documents, func(ctx context.Context, c *client.Client, all change) ([]config.Document, *batch.Result, error) {
		return all.deliver("deleted", func(operations []batch.Operation) (*batch.Result, error) {
			return c.Try(ctx, o.why.about(operations), effect.PreviewNothing)
		}, nil)
	})
	if err != nil || result == nil {
		return err
	}
	var dangling []string
	for _, r := range result.Results {
		dangling = append(dangling, cli.MapSlice(r.Dangling, cli.Plain)...)
	}
	if len(dangling) > 0 {
		fmt.Fprintf(env.Stderr, "Others refer to %s:\n  %s\n", env.referredTo(ctx, documents, dangling), strings.Join(dangling, "\n  "))
	}
	switch {
	case len(dangling) == 0:
		return nil
	case !env.Terminal:
		return exit.With(exit.Usage, errors.New("nothing was deleted: others refer to it, and there is no terminal to ask on: add --yes, or delete those objects in the same command"))
	}
	return env.Confirm(ctx, "Delete it nevertheless?", "nothing was deleted")
}

// remove makes the server delete the objects of documents through do. With --ignore-not-found
// it skips those that do not exist. It returns the others; if there are none, result is nil.
func (o *deleteOptions) remove(ctx context.Context, env *environment, documents []config.Document, do func(context.Context, *client.Client, change) ([]config.Document, *batch.Result, error)) (there []config.Document, result *batch.Result, err error) {
	err = env.Call(ctx, func(ctx context.Context, c *client.Client) error {
		for there = besideFirst(documents); len(there) > 0; {
			_, done, err := do(ctx, c, change{there, removals(there)})
			if err == nil {
				result = done
				return nil
			}
			rest, missing := existing(err, there)
			switch {
			case !missing:
				return err
			case !o.ignoreNotFound:
				for _, d := range there {
					if key := d.Config.Key(); !slices.ContainsFunc(rest, func(r config.Document) bool { return r.Config.Key() == key }) {
						_, _ = c.Warning(env.warn).Get(ctx, client.Resource(cli.WithSide(env.Schemas).Kind(key.Kind)), key.Namespace, key.Name) // for what a source has of it
					}
				}
				return fmt.Errorf("%w\nportolan get KIND -A shows the objects of all namespaces; --ignore-not-found takes objects that do not exist for deleted", err)
			}
			there = rest
		}
		return nil
	})
	return there, result, err
}

func removals(documents []config.Document) []batch.Operation {
	return cli.MapSlice(documents, func(d config.Document) batch.Operation {
		return batch.Remove(d.Config.Key(), d.Config.ResourceVersion)
	})
}

// existing returns the documents whose objects err does not report missing, or false if err is
// about anything else.
func existing(err error, documents []config.Document) ([]config.Document, bool) {
	missing := map[int]bool{}
	for _, cause := range cli.CausesOf(err) {
		i, _, ok := batch.Index(cause.Field)
		if !ok || !cli.IsA(cause, metav1.StatusReasonNotFound) {
			return nil, false
		}
		missing[i] = true
	}
	i := -1
	return slices.DeleteFunc(slices.Clone(documents), func(config.Document) bool {
		i++
		return missing[i]
	}), len(missing) > 0
}

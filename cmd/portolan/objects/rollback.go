package objects

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/batch"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/record"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

type rollbackOptions struct {
	writeFlags
	namespace     string
	allNamespaces bool
	revision      int64
	last          bool // to before the last change of the one object
	yes           bool
}

func newRollbackCommand(env *environment) *cobra.Command {
	var o rollbackOptions
	c := &cobra.Command{
		Use:   "rollback (KIND NAME | KIND/NAME... | -n NAMESPACE | -A) [--to-revision N]",
		Short: "Bring objects back to what they were at a revision, as one change",
		Long: `Bring an object, a whole namespace (-n) or the whole store (-A) back to what it was
at a revision: what was changed since is as it was, what was deleted is there
again, as old as it was, and what did not exist at the revision is deleted, which
its line says. It is a change as any other, with a new revision, and can itself be
rolled back. --dry-run=server shows what it would do, how each object would differ,
and which proxies are concerned.

Without --to-revision one named object goes back to what it was before its last
change. What that would do is shown first, as a dry run does, and on a terminal
you are asked.

An object that somebody changes meanwhile is not overwritten: nothing is done
then (exit code 75). What portolan history shows can be brought back; a revision
that is no longer known, or in the future, is refused (exit code 65).

Secrets stay as they are: the history does not have their data.

Before it rolls back a namespace or the store it asks, on a terminal; elsewhere it
needs --yes. --wait waits until the proxies have taken it.` + waitHelp,
		Example: `  portolan rollback vs/reviews -n shop                    # undo the last change
  portolan rollback vs/reviews -n shop --to-revision 812
  portolan rollback -n shop --to-revision 812 --dry-run=server
  portolan rollback -A --to-revision 812 -m "the release is off" --yes`,
		ValidArgsFunction: completeObjects(env),
		RunE: func(c *cobra.Command, args []string) error {
			s, err := o.scope(env, c, args)
			if err != nil {
				return err
			}
			return o.run(c.Context(), env, s)
		},
	}
	f := c.Flags()
	f.StringVarP(&o.namespace, "namespace", "n", "", `namespace to roll back, or namespace of the named objects (default $PORTOLAN_NAMESPACE, else "default")`)
	f.BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "roll back the whole store")
	f.Int64Var(&o.revision, "to-revision", 0, "the revision to go back to")
	cli.RegisterYes(c, &o.yes)
	o.writeFlags.register(c)
	f.Lookup("dry-run").Usage = "change nothing: server shows what would become of each object, and which proxies are concerned"
	return c
}

// scope reads the flags and the arguments.
func (o *rollbackOptions) scope(env *environment, c *cobra.Command, args []string) (scope, error) {
	if len(args) == 0 && o.namespace == "" && !o.allNamespaces {
		return scope{}, exit.With(exit.Usage, errors.New("name what to roll back: KIND/NAME, -n NAMESPACE for all of a namespace, or -A for the whole store"))
	}
	if o.last = !c.Flags().Changed("to-revision"); !o.last {
		if err := checkRevision("--to-revision", o.revision); err != nil {
			return scope{}, err
		}
	}
	if err := o.check(c); err != nil {
		return scope{}, err
	}
	if o.dry.mode == dryRunClient {
		return scope{}, exit.With(exit.Usage, errors.New("--dry-run=client: the server alone knows what was: use --dry-run=server"))
	}
	s, err := newScope(env, args, o.namespace, o.allNamespaces)
	if err == nil && o.last && len(s.keys) != 1 {
		err = exit.With(exit.Usage, errors.New("--to-revision is missing: only one named object goes back to before its last change without it; portolan history and portolan audit show revisions"))
	}
	if err == nil && o.asks(s) && !env.Terminal {
		err = exit.With(exit.Usage, fmt.Errorf("nothing was rolled back: %s may be many objects, and there is no terminal to ask on: add --yes, or look first with --dry-run=server", s))
	}
	return s, err
}

// asks says whether the rollback must be confirmed, as it goes beyond named objects.
func (o *rollbackOptions) asks(s scope) bool {
	return !o.yes && o.dry.mode == dryRunNone && len(s.keys) == 0
}

// beforeLast finds the revision before the last change of an object.
func (o *rollbackOptions) beforeLast(ctx context.Context, env *environment, c *client.Client, key config.Key) error {
	page, err := c.Records(ctx, record.Query{Group: key.Kind.Group, Kind: key.Kind.Kind, Namespace: key.Namespace, Name: key.Name, Limit: 1, Bare: true})
	if err != nil {
		return err
	}
	if len(page.Items) == 0 {
		if err := o.notElsewhere(ctx, env, c, key); err != nil {
			return err
		}
		return exit.With(exit.Data, fmt.Errorf("nothing was rolled back: the history knows no change of %s", key))
	}
	last, err := strconv.ParseInt(page.Items[0].Revision, 10, 64)
	o.revision = last - 1
	return err
}

// notElsewhere refuses an object that comes from another source than the store. It warns of sources
// that are not read, which may have the object.
func (o *rollbackOptions) notElsewhere(ctx context.Context, env *environment, c *client.Client, key config.Key) error {
	from, err := foundElsewhere(ctx, c.Warning(env.warn), schema.Pilot().Kind(key.Kind), key)
	if err == nil && from != "" {
		err = exit.With(exit.Data, fmt.Errorf("nothing was rolled back: %w", readOnly(key, from)))
	}
	return err
}

// show shows what the rollback would do, and asks on a terminal whether to do it.
func (o *rollbackOptions) show(ctx context.Context, env *environment, s scope, all change) error {
	if !o.last || o.yes || o.dry.mode != dryRunNone {
		return nil
	}
	trial, aside := o.writeFlags, env.aside()
	trial.dry.mode, trial.output = dryRunServer, "table"
	err := env.Call(ctx, func(ctx context.Context, c *client.Client) error {
		result, err := trial.send(ctx, env, c, o.why.about(all.operations), cli.CountOf(len(all.operations), "object"))
		if err != nil {
			return cli.Refused(err, "rolled back", all.documents)
		}
		return trial.report(aside, all.documents, result, o.notes(all))
	})
	if err != nil || !env.Terminal {
		return err
	}
	return env.Confirm(ctx, fmt.Sprintf("Roll %s back to revision %d, before its last change?", s, o.revision), "nothing was rolled back")
}

func (o *rollbackOptions) run(ctx context.Context, env *environment, s scope) error {
	var all change
	err := env.Call(ctx, func(ctx context.Context, c *client.Client) (err error) {
		if o.last {
			err = o.beforeLast(ctx, env, c, s.keys[0])
		}
		if err == nil {
			all, err = o.plan(ctx, env, c, s)
		}
		return err
	})
	if o.why == "" {
		o.why = message(fmt.Sprintf("rollback to revision %d", o.revision))
	}
	if err != nil {
		return err
	}
	if len(all.operations) == 0 {
		fmt.Fprintf(env.Stderr, "Nothing to do: %s is as it was at revision %d.\n", s, o.revision)
		return nil
	}
	if err := cmp.Or(o.confirm(ctx, env, s, all), o.show(ctx, env, s, all)); err != nil {
		return err
	}
	var result *batch.Result
	err = env.Call(ctx, func(ctx context.Context, c *client.Client) (err error) {
		result, err = o.send(ctx, env, c, o.why.about(all.operations), cli.CountOf(len(all.operations), "object"))
		return err
	})
	switch {
	case apierrors.IsRequestEntityTooLargeError(err):
		return fmt.Errorf("nothing was rolled back: %w: roll back one namespace or one object after the other", err)
	case err != nil:
		return cli.Refused(err, "rolled back", all.documents)
	}
	if err := o.report(env, all.documents, result, o.notes(all)); err != nil {
		return err
	}
	return o.await(ctx, env, result)
}

// plan returns the changes that lead from the present state back to the former one.
func (o *rollbackOptions) plan(ctx context.Context, env *environment, c *client.Client, s scope) (change, error) {
	now, err := s.at(ctx, c, 0)
	if err != nil {
		return change{}, err
	}
	if o.revision > now.revision {
		return change{}, exit.With(exit.Data, fmt.Errorf("nothing was rolled back: revision %d is in the future: the store is at %d", o.revision, now.revision))
	}
	then, err := s.at(ctx, c, o.revision)
	if err != nil {
		return change{}, fmt.Errorf("nothing was rolled back: %w", err)
	}
	if err := s.demand(then, now); err != nil {
		for _, key := range s.keys {
			if then.objects[key] == nil && now.objects[key] == nil {
				err = cmp.Or(o.notElsewhere(ctx, env, c, key), err)
			}
		}
		return change{}, err
	}
	keys := s.keysOf(then, now)
	if len(keys) == 0 && s.namespace != "" {
		return change{}, fmt.Errorf("nothing was rolled back: %s has no objects now and had none at revision %d, secrets, users and tokens apart: is the name right?", s, o.revision)
	}
	var all change
	for _, key := range keys {
		operation, needed, err := undo(key, then.objects[key], now.objects[key])
		if err != nil {
			return change{}, err
		}
		if needed {
			all.operations = append(all.operations, operation)
			all.documents = append(all.documents, config.Document{Config: &config.Config{Meta: config.Meta{
				GroupVersionKind: key.Kind, Namespace: key.Namespace, Name: key.Name,
				ResourceVersion: versionOf(now.objects[key]),
			}}})
		}
	}
	return all, nil
}

// notes explains each deletion of a rollback, by the index of its operation.
func (o *rollbackOptions) notes(all change) map[int]string {
	notes := map[int]string{}
	for i, operation := range all.operations {
		if operation.Verb == batch.Delete {
			notes[i] = fmt.Sprintf("it did not exist at revision %d", o.revision)
		}
	}
	return notes
}

// versionOf returns the version that an object must still have when it is written.
func versionOf(object *unstructured.Unstructured) string {
	if object == nil {
		return batch.Absent
	}
	return object.GetResourceVersion()
}

// undo returns the operation that restores a former object; nil means that there was none.
// needed is false if the object has not changed.
func undo(key config.Key, then, now *unstructured.Unstructured) (operation batch.Operation, needed bool, err error) {
	if then == nil {
		return batch.Remove(key, versionOf(now)), true, nil
	}
	if now != nil {
		text, err := differenceBetween(key, now, then)
		if err != nil || text == "" {
			return batch.Operation{}, false, err
		}
	}
	wanted := then.DeepCopy()
	wanted.SetResourceVersion(versionOf(now))
	wanted.SetUID("")
	wanted.SetGeneration(0)
	delete(wanted.Object, "status")
	text, err := json.Marshal(wanted.Object)
	return batch.Operation{Verb: batch.Restore, Object: text}, true, err
}

// confirm asks on a terminal whether to roll back more than the objects named.
func (o *rollbackOptions) confirm(ctx context.Context, env *environment, s scope, all change) error {
	if !o.asks(s) {
		return nil
	}
	counts := map[string]int{}
	for i, operation := range all.operations {
		switch {
		case operation.Verb == batch.Delete:
			counts["deleted"]++
		case all.documents[i].Config.ResourceVersion == batch.Absent:
			counts["created"]++
		default:
			counts["configured"]++
		}
	}
	question := fmt.Sprintf("Roll %s back to revision %d? %s.", s, o.revision, objectCounts(counts))
	return env.Confirm(ctx, question, "nothing was rolled back")
}

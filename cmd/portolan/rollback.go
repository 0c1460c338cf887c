package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/portolan-mesh/portolan/cache/rest/batch"
	"github.com/portolan-mesh/portolan/cache/rest/client"
	"github.com/portolan-mesh/portolan/storage/config"
)

type rollbackOptions struct {
	namespace     string
	allNamespaces bool
	revision      int64
	message       message
	dry           dryRun
	yes           bool
}

func newRollbackCommand(env *environment) *cobra.Command {
	var o rollbackOptions
	c := &cobra.Command{
		Use:   "rollback (KIND NAME | KIND/NAME... | -n NAMESPACE | -A) --to-revision N",
		Short: "Bring objects back to what they were at a revision, as one change",
		Long: `Bring an object, a whole namespace (-n) or the whole store (-A) back to what it was
at a revision: what was changed since is as it was, what was deleted is there
again, as old as it was, and what was created since is deleted. It is a change as
any other, with a new revision, and can itself be rolled back.

An object that somebody changes meanwhile is not overwritten: nothing is done
then (exit code 75). What portolan history shows can be brought back; a revision
that is no longer known, or in the future, is refused (exit code 65).

A namespace or the store is asked about first on a terminal, unless --yes is
given.`,
		Example: `  portolan rollback vs/reviews -n shop --to-revision 812
  portolan rollback -n shop --to-revision 812 --dry-run=server
  portolan rollback -A --to-revision 812 -m "the release is off"`,
		ValidArgsFunction: completeObjects(env),
		RunE: func(c *cobra.Command, args []string) error {
			s, err := o.scope(args)
			if err != nil {
				return err
			}
			return o.run(c.Context(), env, s)
		},
	}
	f := c.Flags()
	f.StringVarP(&o.namespace, "namespace", "n", "", `namespace to roll back, or that of the objects (default "default")`)
	f.BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "roll back the whole store")
	f.Int64Var(&o.revision, "to-revision", 0, "the revision to go back to")
	f.BoolVarP(&o.yes, "yes", "y", false, "do not ask")
	o.message.register(c)
	o.dry.register(c)
	f.Lookup("dry-run").Usage = "change nothing: server says what would become of each object"
	return c
}

// scope reads the flags, and what is to be rolled back.
func (o *rollbackOptions) scope(args []string) (scope, error) {
	if len(args) == 0 && o.namespace == "" && !o.allNamespaces {
		return scope{}, usageError{errors.New("name what to roll back: KIND/NAME, -n NAMESPACE for all of a namespace, or -A for the whole store")}
	}
	if o.revision == 0 {
		return scope{}, usageError{errors.New("--to-revision is missing: portolan history and portolan audit show revisions")}
	}
	if err := checkRevision("--to-revision", o.revision); err != nil {
		return scope{}, err
	}
	if err := o.dry.check(); err != nil {
		return scope{}, err
	}
	if o.dry == dryRunClient {
		return scope{}, usageError{errors.New("--dry-run=client: the server alone knows what was: use --dry-run=server")}
	}
	if o.message == "" {
		o.message = message(fmt.Sprintf("rollback to revision %d", o.revision))
	}
	if err := o.message.check(); err != nil {
		return scope{}, err
	}
	return newScope(args, o.namespace, o.allNamespaces)
}

func (o *rollbackOptions) run(ctx context.Context, env *environment, s scope) error {
	var all change
	err := env.call(ctx, func(ctx context.Context, c *client.Client) (err error) {
		all, err = o.plan(ctx, c, s)
		return err
	})
	if err != nil {
		return err
	}
	if len(all.operations) == 0 {
		fmt.Fprintf(env.stderr, "Nothing to do: %s is as it was at revision %d.\n", s, o.revision)
		return nil
	}
	if err := o.confirm(ctx, env, s, all); err != nil {
		return err
	}
	return env.call(ctx, func(ctx context.Context, c *client.Client) error {
		result, err := o.dry.send(ctx, c, o.message.about(all.operations))
		if err == nil {
			return env.printOutcomes(all.documents, result, o.dry)
		}
		if apierrors.IsRequestEntityTooLargeError(err) {
			return fmt.Errorf("nothing was rolled back: %w: roll back one namespace or one object after the other", err)
		}
		return refused(err, "rolled back", all.documents)
	})
}

// plan finds out what has to be done to get from what is to what was.
func (o *rollbackOptions) plan(ctx context.Context, c *client.Client, s scope) (change, error) {
	now, err := s.at(ctx, c, 0)
	if err != nil {
		return change{}, err
	}
	if o.revision > now.revision {
		return change{}, dataError{fmt.Errorf("nothing was rolled back: revision %d is in the future: the store is at %d", o.revision, now.revision)}
	}
	then, err := s.at(ctx, c, o.revision)
	if err != nil {
		return change{}, fmt.Errorf("nothing was rolled back: %w", err)
	}
	if err := s.demand(then, now); err != nil {
		return change{}, err
	}
	var all change
	for _, key := range s.keysOf(then, now) {
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

// versionOf is the condition that an object has not changed since it was read.
func versionOf(object *unstructured.Unstructured) string {
	if object == nil {
		return batch.Absent
	}
	return object.GetResourceVersion()
}

// undo is the operation that makes of an object what it was; nil is none.
// Nothing is needed where it says the same.
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
	if o.yes || o.dry != dryRunNone || len(s.keys) > 0 || !env.terminal {
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
	fmt.Fprintf(env.stderr, "Roll %s back to revision %d? %s. [y/N] ", s, o.revision, objectCounts(counts))
	answer, err := env.ask(ctx)
	if err != nil {
		return fmt.Errorf("nothing was rolled back: %w", err)
	}
	if answer != "y" && answer != "yes" {
		return errors.New("nothing was rolled back: you did not say yes")
	}
	return nil
}

// ask reads a line from the user, in lower case. Its goroutine ends with the
// line, or with the program where the user gives up instead.
func (e *environment) ask(ctx context.Context) (string, error) {
	line := make(chan string, 1)
	go func() {
		text, _ := bufio.NewReader(e.stdin).ReadString('\n') // the end of input is an answer too
		line <- text
	}()
	select {
	case text := <-line:
		return strings.ToLower(strings.TrimSpace(text)), nil
	case <-ctx.Done():
		fmt.Fprintln(e.stderr)
		return "", errors.New("interrupted")
	}
}

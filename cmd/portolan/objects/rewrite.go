package objects

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/go-multierror"
	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/batch"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/retry"
)

// rewriteHelp is the help text of the commands that change stored objects.
const rewriteHelp = `

-f names the objects by files, whose other content does not matter.

All objects are changed as one change, or none. They are read first, and written only if
nobody has changed them since; if somebody has, the command reads them anew, up to 5 times.

The exit code is 1 where an object does not exist, 64 where the command line cannot be
understood, 65 where the change is refused, and 75 where others changed an object each
time. If --all or -l selects nothing, it is 0.`

// rewriteAttempts is how often a change is tried while others change the objects.
const rewriteAttempts = 5

// rewrite changes stored objects: it reads them, and writes them if they are still as they were
// read.
type rewrite struct {
	writeFlags
	among among
	files fileFlags
	done  string // what becomes of the objects, such as "labeled"
}

func (o *rewrite) register(c *cobra.Command) {
	o.writeFlags.register(c)
	o.among.register(c, c.Name())
	c.Flags().Lookup("dry-run").Usage = "change nothing: server shows what would become of each object, and which proxies are concerned"
	o.files.register(c, c.Name())
	c.Flags().Lookup("namespace").Usage = `namespace of the objects (default $PORTOLAN_NAMESPACE, else "default")`
}

// choose returns the objects that arguments name, or the files.
func (o *rewrite) choose(ctx context.Context, env *environment, args []string, verb string) (selection, error) {
	switch {
	case o.files.none():
		return o.among.choose(env, args, o.files.namespace, verb)
	case len(args) > 0:
		return selection{}, exit.With(exit.Usage, fmt.Errorf("%s: name objects either by files (-f) or by arguments", args[0]))
	case o.among.asked():
		return selection{}, exit.With(exit.Usage, errors.New("--all, -l and -A select among the objects of a kind: name one, and leave the files out"))
	}
	m, err := o.files.read(ctx, env)
	if err != nil {
		return selection{}, err
	}
	var out selection
	for _, d := range m.documents {
		out.add(env, m.schemas.Kind(d.Config.GroupVersionKind), d.Config.Namespace, d.Config.Name)
	}
	return out, m.err(o.done)
}

func (o *rewrite) check(c *cobra.Command) error {
	if err := o.writeFlags.check(c); err != nil {
		return err
	}
	if o.dry.mode == dryRunClient {
		return exit.With(exit.Usage, errors.New("--dry-run=client: the server alone knows the objects to change: use --dry-run=server"))
	}
	return nil
}

// run has an object of each selected one changed by alter, which gets a copy of its own, and writes
// what becomes of them.
func (o *rewrite) run(ctx context.Context, env *environment, selected selection, alter func(*unstructured.Unstructured) (*unstructured.Unstructured, error)) error {
	var all change
	var result *batch.Result
	err := env.Call(ctx, func(ctx context.Context, c *client.Client) error {
		pause := retry.NewFair(50*time.Millisecond, time.Second)
		for attempt := 1; ; attempt++ {
			before, err := o.among.readBy(ctx, env, c, selected, o.files.namespace)
			if err != nil || len(before) == 0 {
				return err
			}
			if all, err = o.plan(before, alter); err != nil {
				return err
			}
			documents, done, err := o.deliver(ctx, env, c, all, o.done, o.why.about)
			if err == nil {
				all.documents, result = documents, done
				return nil
			}
			if !apierrors.IsConflict(err) || attempt == rewriteAttempts || !all.asRead(before) {
				return err
			}
			if err := pause.Wait(ctx); err != nil {
				return err
			}
		}
	})
	if err != nil {
		return err
	}
	if result == nil {
		fmt.Fprintf(env.Stderr, "Nothing was %s: the store has no such objects.\n", o.done)
		return nil
	}
	if err := o.report(env, all.documents, result, nil); err != nil {
		return err
	}
	return o.await(ctx, env, result)
}

// asRead says whether the objects are to be written in the versions in which they were read. A patch
// may name another.
func (c change) asRead(before []storedOnly) bool {
	for i, d := range c.documents {
		if d.Config.ResourceVersion != before[i].object.GetResourceVersion() {
			return false
		}
	}
	return true
}

// plan returns the operations that write the altered objects.
func (o *rewrite) plan(before []storedOnly, alter func(*unstructured.Unstructured) (*unstructured.Unstructured, error)) (change, error) {
	var all change
	var faults *multierror.Error
	for _, one := range before {
		after, err := alter(one.object.DeepCopy())
		if err == nil {
			err = sameObject(one.object, after)
		}
		if err != nil {
			faults = multierror.Append(faults, fmt.Errorf("%s: %w", one.key, err))
			continue
		}
		operation, err := update(after)
		if err != nil {
			return change{}, err
		}
		document := one.document()
		document.Config.ResourceVersion = after.GetResourceVersion()
		all.documents, all.operations = append(all.documents, document), append(all.operations, operation)
	}
	if err := cli.NothingDone(o.done, faults); err != nil {
		return change{}, exit.With(exit.Data, err)
	}
	return all, nil
}

// sameObject refuses an object that has become another.
func sameObject(before, after *unstructured.Unstructured) error {
	for _, f := range []struct{ field, was, is string }{
		{"apiVersion", before.GetAPIVersion(), after.GetAPIVersion()}, {"kind", before.GetKind(), after.GetKind()},
		{"metadata.name", before.GetName(), after.GetName()}, {"metadata.namespace", before.GetNamespace(), after.GetNamespace()},
	} {
		if f.was != f.is {
			return fmt.Errorf("%s cannot become %q: it stays %q", f.field, f.is, f.was)
		}
	}
	return nil
}

// update returns the operation that writes an object in the version in which it was read.
func update(object *unstructured.Unstructured) (batch.Operation, error) {
	text, err := json.Marshal(editable(object).Object)
	if err != nil {
		return batch.Operation{}, fmt.Errorf("write %s: %w", config.Key{Namespace: object.GetNamespace(), Name: object.GetName()}, err)
	}
	return batch.Operation{Verb: batch.Update, Object: text}, nil
}

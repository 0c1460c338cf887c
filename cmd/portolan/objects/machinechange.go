package objects

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/batch"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/discovery/node"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/health"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// withdrawal is a command that withdraws a machine from its clients, or ends that.
type withdrawal struct {
	annotation, done string // the annotation of the entry, and what the command has done
	namespace        string
	reason           string
	end              bool
	wait             bool
	waits            waitFlags
}

func (o *withdrawal) register(c *cobra.Command, end string) {
	registerMachineNamespace(c, &o.namespace)
	f := c.Flags()
	f.StringVar(&o.reason, "reason", "", "why, for those who look at the machine and at the history")
	f.BoolVar(&o.end, "end", false, end)
	c.MarkFlagsMutuallyExclusive("reason", "end")
	f.BoolVar(&o.wait, "wait", false, "wait until the proxies have taken it")
	o.waits.register(c)
}

func (o *withdrawal) check(c *cobra.Command) error {
	if err := o.waits.only(o.wait, c.Flags().Changed, ""); err != nil {
		return err
	}
	if !o.end && o.reason != "" {
		if err := health.CheckReason(o.reason); err != nil {
			return exit.With(exit.Usage, fmt.Errorf("--reason %w", err))
		}
	}
	return o.waits.check()
}

func newMachineDrainCommand(env *environment) *cobra.Command {
	o := withdrawal{annotation: health.DrainedAnnotation, done: "drained"}
	c := &cobra.Command{
		Use:   "drain NAME",
		Short: "Take a machine out of its clients' endpoints, and let it stay in the mesh",
		Long: `Take a machine out of its clients' endpoints, and let it stay in the mesh: its proxy keeps
its configuration and its certificate. Requests under way end, new ones go to others.

The annotation portolan.io/drained of the WorkloadEntry says so, with the reason. The entry
then stays when the machine is away, and is drained when it comes back, until --end.`,
		Example: `  portolan machine drain ratings-10.0.0.21 -n shop --reason "a new disk" --wait
  portolan machine drain ratings-10.0.0.21 -n shop --end`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeMachines(env),
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.check(c); err != nil {
				return err
			}
			return o.run(c.Context(), env, entryKey(cmp.Or(o.namespace, env.Namespace), args[0]))
		},
	}
	o.register(c, "end the drain: clients send to the machine again")
	return c
}

func newMachineRemoveCommand(env *environment) *cobra.Command {
	o := withdrawal{annotation: health.RemovedAnnotation, done: "removed"}
	yes := false
	c := &cobra.Command{
		Use:   "remove NAME",
		Short: "Take a machine out of the mesh's services, also while it runs",
		Long: `Take a machine out of the mesh's services, also while it runs. An entry by hand is deleted.
That of a machine which registered itself stays, with the annotation portolan.io/removed: it
is no endpoint, and servers refuse to register the machine, until --end.

The certificate of the machine stays good until it ends, and its proxy still gets configuration.
A RevokedIdentity ends the renewal for the service account, and so for all of its machines.`,
		Example: `  portolan machine remove ratings-10.0.0.21 -n shop --reason stolen
  portolan machine remove ratings-10.0.0.21 -n shop --end`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeMachines(env),
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.check(c); err != nil {
				return err
			}
			key := entryKey(cmp.Or(o.namespace, env.Namespace), args[0])
			if !o.end && !yes {
				if !env.Terminal {
					return exit.With(exit.Usage, errors.New("nothing was removed: give --yes, since there is no terminal to ask on"))
				}
				if err := env.Confirm(c.Context(), fmt.Sprintf("Remove the machine of %s?", key), "nothing was removed"); err != nil {
					return err
				}
			}
			return o.run(c.Context(), env, key)
		},
	}
	o.register(c, "let the machine back")
	cli.RegisterYes(c, &yes)
	return c
}

// run makes the change, says so, and waits if it is to.
func (o *withdrawal) run(ctx context.Context, env *environment, key config.Key) error {
	m, _, err := env.machine(ctx, key)
	if err == nil && m.NoEntry {
		err = fmt.Errorf("the machine %s/%s has no WorkloadEntry: nobody sends to it. A RevokedIdentity keeps it out of the mesh", m.Namespace, m.Name)
	}
	if err != nil {
		return err
	}
	was := map[string]string{health.DrainedAnnotation: m.Drained, health.RemovedAnnotation: m.Removed}[o.annotation]
	switch {
	case o.end && was == "":
		return fmt.Errorf("%s is not %s: nothing has changed", key, o.done)
	case !o.end && o.reason == "":
		o.reason = cmp.Or(was, "no reason given")
	}
	result, err := env.changeEntry(ctx, key, func(entry *unstructured.Unstructured) (batch.Operation, error) { return o.operation(m, entry) })
	if err != nil {
		return err
	}
	done := o.done
	switch {
	case o.end:
		done += " no more"
	case o.annotation == health.RemovedAnnotation && m.Group != "":
		fmt.Fprintf(env.Stderr, "The certificate of the machine stays good until it ends, and is renewed unless a RevokedIdentity is for its account.\n")
	}
	env.Warn(result.Warnings, result.Infos...)
	fmt.Fprintf(env.Stdout, "%s %s  rev %s\n", key, done, result.Revision)
	if undo := o.undo(m, key); undo != "" {
		fmt.Fprintln(env.Stderr, undo)
	}
	if !o.wait {
		return nil
	}
	return env.waitForBatch(ctx, result, o.waits)
}

// undo says which command takes the machine back; empty if none does.
func (o *withdrawal) undo(m machine, key config.Key) string {
	switch {
	case o.end:
		return ""
	case o.annotation == health.DrainedAnnotation:
		return node.Standing{Entry: key.String()}.EndDrain() + " takes it back."
	case m.Group != "":
		return fmt.Sprintf("portolan machine remove %s -n %s --end lets it back.", key.Name, key.Namespace)
	}
	return "" // the entry is gone
}

// operation returns what changes the entry. One that nobody renews is deleted where it would
// otherwise be an endpoint for ever: it comes back with its machine.
func (o *withdrawal) operation(m machine, entry *unstructured.Unstructured) (batch.Operation, error) {
	remove := o.annotation == health.RemovedAnnotation && m.Group == ""
	lapsed := o.end && m.Group != "" && !m.Connected && (o.annotation == health.RemovedAnnotation || m.Removed == "")
	if !o.end && remove || lapsed {
		return batch.Remove(entryKey(entry.GetNamespace(), entry.GetName()), entry.GetResourceVersion()), nil
	}
	annotations := entry.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	if delete(annotations, o.annotation); !o.end {
		annotations[o.annotation] = o.reason
	}
	entry.SetAnnotations(annotations)
	unstructured.RemoveNestedField(entry.Object, "status")
	text, err := json.Marshal(entry.Object)
	return batch.Operation{Verb: batch.Update, Object: text}, err
}

// changes is how often a change of an entry is tried that others change meanwhile.
const changes = 5

// changeEntry changes an entry as it is now.
func (e *environment) changeEntry(ctx context.Context, key config.Key, change func(*unstructured.Unstructured) (batch.Operation, error)) (result *batch.Result, err error) {
	kind := e.Schemas.Kind(schema.WorkloadEntry)
	err = e.Call(ctx, func(ctx context.Context, c *client.Client) error {
		for left := changes; ; left-- {
			entry, err := c.Fresh(client.Freshness{Consistent: true}).Get(ctx, client.Resource(kind), key.Namespace, key.Name)
			if apierrors.IsNotFound(err) {
				return notFound(key, kind)
			} else if err != nil {
				return err
			}
			operation, err := change(entry)
			if err != nil {
				return err
			}
			if result, err = c.Apply(ctx, batch.New(operation)); left == 1 || !apierrors.IsConflict(err) {
				return err
			}
		}
	})
	return result, err
}

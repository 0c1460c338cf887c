package objects

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/hashicorp/go-multierror"
	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/batch"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/retry"
)

// Conditions that clients set are kept beside the objects. So each status is a change of its own,
// which the history does not have and no proxy waits for.

// checkSubresource checks --subresource, and refuses the flags that mean nothing with it.
func (o *patchOptions) checkSubresource(c *cobra.Command) error {
	if o.subresource == "" {
		return nil
	}
	for _, flag := range []string{"message", "wait", "xds"} {
		if c.Flags().Changed(flag) {
			return exit.With(exit.Usage, fmt.Errorf("--%s is about objects, and a status is kept beside its object: leave it out, or --subresource", flag))
		}
	}
	return cli.OneOf("--subresource", o.subresource, "status")
}

// runStatus patches the statuses of the selected objects, one after the other, up to the first that
// is refused.
func (o *patchOptions) runStatus(ctx context.Context, env *environment, selected selection, alter func(*unstructured.Unstructured) (*unstructured.Unstructured, error)) error {
	result := &batch.Result{TypeMeta: metav1.TypeMeta{Kind: batch.ResultKind, APIVersion: batch.APIVersion}}
	var documents []config.Document
	err := env.Call(ctx, func(ctx context.Context, c *client.Client) error {
		all, err := o.among.readBy(ctx, env, c, selected, o.files.namespace)
		if err != nil {
			return err
		}
		if err := o.tryStatuses(all, alter); err != nil {
			return err
		}
		for _, one := range all {
			outcome, err := o.patchStatus(ctx, env, c, one, alter)
			if err != nil {
				return err
			}
			documents, result.Results = append(documents, one.document()), append(result.Results, outcome)
		}
		return nil
	})
	if len(documents) > 0 {
		err = errors.Join(o.report(env, documents, result, nil), err)
	} else if err == nil {
		fmt.Fprintln(env.Stderr, "Nothing was patched: the store has no such objects.")
	}
	return err
}

// tryStatuses returns the faults of the patch with all objects, before any is written.
func (o *patchOptions) tryStatuses(all []storedOnly, alter func(*unstructured.Unstructured) (*unstructured.Unstructured, error)) error {
	var faults *multierror.Error
	for _, one := range all {
		after, err := alter(one.object.DeepCopy())
		if err == nil {
			err = sameObject(one.object, after)
		}
		if err != nil {
			faults = multierror.Append(faults, fmt.Errorf("%s: %w", one.key, err))
		}
	}
	if err := cli.NothingDone(o.done, faults); err != nil {
		return exit.With(exit.Data, err)
	}
	return nil
}

// patchStatus writes the status that a patch makes of one object. It reads the object anew if
// somebody has changed it meanwhile.
func (o *patchOptions) patchStatus(ctx context.Context, env *environment, c *client.Client, one storedOnly, alter func(*unstructured.Unstructured) (*unstructured.Unstructured, error)) (batch.Outcome, error) {
	kind := env.Schemas.Kind(one.key.Kind)
	pause := retry.NewFair(50*time.Millisecond, time.Second)
	for attempt := 1; ; attempt++ {
		after, err := alter(one.object.DeepCopy())
		if err != nil {
			return batch.Outcome{}, exit.With(exit.Data, fmt.Errorf("%s: %w", one.key, err))
		}
		answer, err := c.PutStatus(ctx, client.Resource(kind), after, o.dry.mode == dryRunServer)
		if err == nil {
			out := batch.Outcome{
				Kind: one.key.Kind.Kind, Namespace: one.key.Namespace, Name: one.key.Name,
				Outcome: string(storage.Configured), ResourceVersion: answer.GetResourceVersion(),
			}
			if reflect.DeepEqual(conditionsOf(one.object), conditionsOf(answer)) {
				out.Outcome = string(storage.Unchanged)
			}
			return out, nil
		}
		if !apierrors.IsConflict(err) || attempt == rewriteAttempts || after.GetResourceVersion() != one.object.GetResourceVersion() {
			return batch.Outcome{}, fmt.Errorf("%s: its status was not patched: %w", one.key, err)
		}
		if err := pause.Wait(ctx); err != nil {
			return batch.Outcome{}, err
		}
		if one.object, err = readOne(ctx, c.Fresh(client.Freshness{Consistent: true}), kind, one.key); err != nil {
			return batch.Outcome{}, err
		}
	}
}

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cache/rest/batch"
	"github.com/portolan-mesh/portolan/cache/rest/client"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

type deleteOptions struct {
	files          fileFlags
	ignoreNotFound bool
	dry            dryRun
	why            message
}

func newDeleteCommand(env *environment) *cobra.Command {
	var o deleteOptions
	c := &cobra.Command{
		Use: "delete (-f FILE|DIR|- | KIND NAME... | KIND/NAME...)", SuggestFor: []string{"remove", "rm"},
		Short: "Delete objects, all of them as one change",
		Long: `Delete objects, named by files or by arguments: all of them as one change, or,
where one of them does not exist, none.

A metadata.resourceVersion in a file must be that of the stored object.

--dry-run=server says what would be deleted, with the errors that the delete
would have; --dry-run=client only reads the files or arguments.`,
		Example: `  portolan delete -f shop/
  portolan delete vs reviews ratings -n shop
  portolan delete vs/reviews dr/reviews -n shop --ignore-not-found`,
		ValidArgsFunction: completeObjects(env),
		RunE: func(c *cobra.Command, args []string) error {
			if err := cmp.Or(o.dry.check(), o.why.check()); err != nil {
				return err
			}
			documents, err := o.documents(env, args)
			if err != nil {
				return err
			}
			return o.run(c.Context(), env, documents)
		},
	}
	o.files.register(c, "delete")
	o.dry.register(c)
	o.why.register(c)
	c.Flags().BoolVar(&o.ignoreNotFound, "ignore-not-found", false, "take objects that do not exist for deleted")
	return c
}

// documents are the objects to delete; those named by arguments stand in no
// file.
func (o *deleteOptions) documents(env *environment, args []string) ([]config.Document, error) {
	switch {
	case len(args) == 0 && len(o.files.names) == 0:
		return nil, usageError{errors.New("name what to delete: KIND NAME, KIND/NAME, or files with -f")}
	case len(args) > 0 && len(o.files.names) > 0:
		return nil, usageError{fmt.Errorf("%s: name objects either by files (-f) or by arguments", args[0])}
	case len(args) > 0:
		selected, err := selectObjects(schema.Pilot(), args, o.files.namespace)
		if err != nil {
			return nil, err
		}
		if len(selected.keys) == 0 {
			return nil, usageError{fmt.Errorf("name the %s to delete", selected.kinds[0].Plural)}
		}
		var documents []config.Document
		for _, key := range selected.keys {
			documents = append(documents, config.Document{Config: &config.Config{
				Meta: config.Meta{GroupVersionKind: key.Kind, Namespace: key.Namespace, Name: key.Name},
			}})
		}
		return documents, nil
	}
	m, err := o.files.read(env.stdin)
	if err != nil {
		return nil, err
	}
	return m.documents, m.err("deleted")
}

func (o *deleteOptions) run(ctx context.Context, env *environment, documents []config.Document) error {
	if o.dry == dryRunClient {
		return env.printValid(&manifest{documents: documents})
	}
	return env.call(ctx, func(ctx context.Context, c *client.Client) error {
		for len(documents) > 0 {
			result, err := o.dry.send(ctx, c, o.why.about(removals(documents)))
			if err == nil {
				return env.printOutcomes(documents, result, o.dry)
			}
			rest, ok := existing(err, documents)
			if !ok || !o.ignoreNotFound {
				return refused(err, "deleted", documents)
			}
			documents = rest
		}
		return nil
	})
}

func removals(documents []config.Document) []batch.Operation {
	return each(documents, func(d config.Document) batch.Operation {
		return batch.Remove(d.Config.Key(), d.Config.ResourceVersion)
	})
}

// existing are the documents whose objects are not reported missing; false where
// the error is about anything else.
func existing(err error, documents []config.Document) ([]config.Document, bool) {
	missing := map[int]bool{}
	for _, cause := range causesOf(err) {
		i, _, ok := batch.Index(cause.Field)
		if !ok || !isA(cause, metav1.StatusReasonNotFound) {
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

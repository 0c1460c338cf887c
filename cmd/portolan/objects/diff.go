package objects

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/aymanbagabas/go-udiff"
	"github.com/spf13/cobra"
	yamlv2 "go.yaml.in/yaml/v2"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/batch"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/secret"
	"github.com/portolan-mesh/portolan/xds/admin/effect"
)

type diffOptions struct {
	files     fileFlags
	prune     pruneFlags
	revisions revisionFlags
}

func newDiffCommand(env *environment) *cobra.Command {
	var o diffOptions
	c := &cobra.Command{
		Use:   "diff (-f FILE|DIR|- | [KIND | KIND NAME... | KIND/NAME...] --from REVISION [--to REVISION])",
		Short: "Show what an apply would change, or what has changed since a revision",
		Long: `Show how files differ from what is stored, as unified diffs of YAML: what an
apply of the same files would change. Objects are in the order of the files;
those that are the same print nothing. What only a server sets is left out; a
resourceVersion is shown where the file has one, and the store the object. Of an object
of another source it warns what an apply does, also that it is refused: the server tries it.

With --from it shows instead what has changed in the store since a revision, or up
to another (--to): of objects, of a kind, of a namespace (-n), or of everything (-A).

The exit code is 0 where there is no difference, 2 where there is one, and another
after an error.` + pruneHelp,
		Example: `  portolan diff -f shop.yaml
  portolan diff -f shop/ -R -n shop && echo "nothing to apply"
  portolan diff vs/reviews -n shop --from 812
  portolan diff -A --from 812 --to 815`,
		ValidArgsFunction: completeObjects(env),
		RunE: func(c *cobra.Command, args []string) error {
			if o.revisions.comparesRevisions(c) {
				return o.runRevisions(c, env, args)
			}
			if err := filesOnly(c, args); err != nil {
				return exit.With(exit.Usage, fmt.Errorf("%w, or give --from REVISION", err))
			}
			if o.files.none() {
				return exit.With(exit.Usage, errors.New("name what to compare: -f FILE, -f DIR, -f URL, -k DIR, or -f - for stdin; or --from REVISION"))
			}
			if err := o.prune.check(env.Schemas, dryRunNone); err != nil {
				return err
			}
			return o.run(c.Context(), env)
		},
	}
	o.files.register(c, "compare")
	o.prune.register(c)
	o.revisions.register(c)
	return c
}

func (o *diffOptions) runRevisions(c *cobra.Command, env *environment, args []string) error {
	if !o.files.none() || o.prune.enabled || o.prune.selector != "" || len(o.prune.names) > 0 {
		return exit.With(exit.Usage, errors.New("--from, --to and -A compare revisions of the store, and -f and --prune files with it: leave one of them out"))
	}
	if err := o.revisions.check(c); err != nil {
		return err
	}
	s, err := newScope(env, args, o.files.namespace, o.revisions.allNamespaces)
	if err != nil {
		return err
	}
	return o.revisions.run(c.Context(), env, s)
}

func (o *diffOptions) run(ctx context.Context, env *environment) error {
	m, err := o.files.read(ctx, env)
	if err != nil {
		return err
	}
	m.validate()
	o.prune.demand(m)
	if err := m.err("compared"); err != nil {
		return err
	}
	var stored map[config.Key]*unstructured.Unstructured
	var more []storedOnly
	err = env.Call(ctx, func(ctx context.Context, c *client.Client) (err error) {
		if stored, err = storedOf(ctx, c.Fresh(client.Freshness{Consistent: true}).Warning(env.warn), m); err != nil {
			return err
		}
		if err = foretell(ctx, env, c, m, stored); err != nil {
			return err
		}
		more, err = o.prune.superfluous(ctx, c, m, o.files.namespace)
		return err
	})
	if err != nil {
		return err
	}
	var found bool
	for _, d := range m.documents {
		text, err := difference(stored[d.Config.Key()], d)
		if err != nil {
			return err
		}
		found = found || text != ""
		if err := cli.WriteDiff(env.Stdout, text); err != nil {
			return err
		}
	}
	for _, s := range more {
		text, err := s.difference()
		if err != nil {
			return err
		}
		found = true
		if err := cli.WriteDiff(env.Stdout, text); err != nil {
			return err
		}
	}
	if found {
		return cli.ErrDifferences
	}
	return nil
}

// foretell warns of documents that are compared with objects of other sources than the store, and says what
// an apply of them does: the server tries it.
func foretell(ctx context.Context, env *environment, c *client.Client, m *manifest, stored map[config.Key]*unstructured.Unstructured) error {
	beside := &manifest{schemas: m.schemas}
	for _, d := range m.documents {
		if object := stored[d.Config.Key()]; object != nil && otherSource(object) != "" {
			beside.documents = append(beside.documents, d)
		}
	}
	if len(beside.documents) == 0 {
		return nil
	}
	operations, err := beside.operations(batch.Apply)
	if err != nil {
		return err
	}
	_, err = c.Try(ctx, batch.New(operations...), effect.PreviewNothing)
	does := "an apply is refused"
	switch exit.Of(err) {
	case exit.OK:
		does = "an apply makes an object of the store, which is used instead"
	case exit.Data, exit.Conflict, exit.Forbidden:
	default:
		return err
	}
	for _, d := range beside.documents {
		env.Warn([]string{fmt.Sprintf("%s comes from the source %s, and is compared with that: %s", d.Config.Key(), otherSource(stored[d.Config.Key()]), does)})
	}
	if err != nil {
		env.Warn([]string{"an apply is refused: " + strings.TrimPrefix(cli.Refused(err, "applied", beside.documents).Error(), "nothing was applied: ")})
	}
	return nil
}

type place struct {
	kind      *schema.Schema
	namespace string
}

// storedOf returns the stored objects that the documents are about. It fetches several objects
// of one place together.
func storedOf(ctx context.Context, c *client.Client, m *manifest) (map[config.Key]*unstructured.Unstructured, error) {
	names := map[place][]string{}
	var order []place
	for _, d := range m.documents {
		p := place{m.schemas.Kind(d.Config.GroupVersionKind), d.Config.Namespace}
		if names[p] == nil {
			order = append(order, p)
		}
		names[p] = append(names[p], d.Config.Name)
	}
	stored := map[config.Key]*unstructured.Unstructured{}
	for _, p := range order {
		var which client.Selection
		if len(names[p]) == 1 {
			which.Fields = "metadata.name=" + names[p][0]
		}
		list, err := c.List(ctx, client.Resource(p.kind), p.namespace, which)
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			object := &list.Items[i]
			stored[config.Key{Kind: p.kind.GroupVersionKind, Namespace: object.GetNamespace(), Name: object.GetName()}] = object
		}
	}
	return stored, nil
}

// difference returns how the document would change the stored object, nil if there is none. It
// is empty if nothing would change.
func difference(stored *unstructured.Unstructured, d config.Document) (string, error) {
	key := d.Config.Key().String()
	text, err := config.ToJSON(config.Shown(d.Config), "")
	if err != nil {
		return "", exit.With(exit.Data, d.Fault("", err.Error()))
	}
	wanted := &unstructured.Unstructured{}
	if err := wanted.UnmarshalJSON(text); err != nil {
		return "", exit.With(exit.Data, d.Fault("", err.Error()))
	}
	if spec, ok := d.Config.Spec.(*secret.Spec); ok && stored != nil && spec.InClear() { // this program does not know the stored data
		wanted.Object["sealed"] = stored.Object["sealed"]
		if spec.Type == "" {
			wanted.Object["type"] = secret.Opaque
		}
	}
	beside := stored != nil && !ofStore(stored)
	if beside {
		withoutAnnotation(wanted, lastApplied) // sources leave it out
	}
	versioned := d.Config.ResourceVersion != "" && !beside // a source's versions are none of the store
	after, err := comparableText(wanted, versioned)
	if err != nil {
		return "", err
	}
	if stored == nil {
		return udiff.Unified(cli.Nowhere, key+"\t"+d.Source, "", after), nil
	}
	before, err := comparableText(stored, versioned)
	if err != nil {
		return "", err
	}
	label := "rev " + stored.GetResourceVersion()
	if beside {
		label = otherSource(stored)
	}
	return udiff.Unified(key+"\t"+label, key+"\t"+d.Source, before, after), nil
}

// withoutAnnotation drops an annotation from an object.
func withoutAnnotation(object *unstructured.Unstructured, name string) {
	annotations := object.GetAnnotations()
	if delete(annotations, name); len(annotations) == 0 {
		annotations = nil
	}
	object.SetAnnotations(annotations)
}

// comparableText returns the YAML of an object without the fields that only the server sets.
func comparableText(object *unstructured.Unstructured, versioned bool) (string, error) {
	object = editable(object)
	withoutAnnotation(object, config.SourceAnnotation)
	object.SetManagedFields(nil)
	if !versioned {
		object.SetResourceVersion("")
	}
	text, err := yamlv2.Marshal(object.Object)
	if err != nil {
		return "", fmt.Errorf("write %s/%s as YAML: %w", object.GetNamespace(), object.GetName(), err)
	}
	return string(text), nil
}

package objects

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/hashicorp/go-multierror"
	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// among says which objects of a kind a command is about, where its arguments name none.
type among struct {
	all           bool
	selector      string
	allNamespaces bool
	// anySource selects the objects of all sources; else those of the store alone, which can be
	// changed.
	anySource bool
}

func (a *among) register(c *cobra.Command, verb string) {
	f := c.Flags()
	f.BoolVar(&a.all, "all", false, verb+" all objects of the kind in the namespace")
	f.StringVarP(&a.selector, "selector", "l", "", verb+" the objects with these labels, such as app=web,'version in (v1, v2)'")
	f.BoolVarP(&a.allNamespaces, "all-namespaces", "A", false, "with --all and -l, those of all namespaces")
}

func (a *among) asked() bool { return a.all || a.selector != "" || a.allNamespaces }

// choose parses the arguments: names, or kinds with --all or -l.
func (a *among) choose(env *environment, args []string, namespace, verb string) (selection, error) {
	if len(args) == 0 {
		return selection{}, exit.With(exit.Usage, fmt.Errorf("name what to %s: KIND/NAME, KIND NAME, or KIND with --all or -l", verb))
	}
	selected, err := selectObjects(env, args, namespace)
	if err != nil {
		return selection{}, err
	}
	if selected.every && !a.allNamespaces {
		selected.kinds = slices.DeleteFunc(selected.kinds, func(k *schema.Schema) bool { return k.ClusterScoped })
	}
	return selected, a.check(selected, namespace, verb)
}

func (a *among) check(selected selection, namespace, verb string) error {
	_, err := labels.Parse(a.selector)
	switch {
	case len(selected.keys) > 0 && a.asked():
		err = errors.New("--all, -l and -A select among all objects of a kind: leave them out, or the names")
	case a.all && a.selector != "":
		err = errors.New("--all is every object of the kind, and -l are some: leave one of them out")
	case a.allNamespaces && namespace != "":
		return cli.OneScope(true, true)
	case len(selected.keys) == 0 && !a.all && a.selector == "":
		err = fmt.Errorf("name the %s to %s, or add --all or -l", selected.kinds[0].Plural, verb)
	case err != nil:
		err = fmt.Errorf("-l %q: %w", a.selector, err)
	}
	if err != nil {
		return exit.With(exit.Usage, err)
	}
	return nil
}

// read returns the stored objects of a selection, as they are now: by kind, namespace and name, or
// in the order of the names given. If a kind has none, it says so; done is what was not done to
// it.
func (a *among) read(ctx context.Context, env *environment, selected selection, namespace, done string) (all []storedOnly, err error) {
	err = env.Call(ctx, func(ctx context.Context, c *client.Client) error {
		all, err = a.readBy(ctx, env, c, selected, namespace)
		return err
	})
	if err == nil && len(all) == 0 {
		lacking := "the store has"
		if a.anySource {
			lacking = "there are"
		}
		fmt.Fprintf(env.Stderr, "Nothing was %s: %s no such objects.\n", done, lacking)
	}
	return all, err
}

// readBy is read with a client. It warns of objects that are not of the store: a selection of nothing else
// is as one of nothing.
func (a *among) readBy(ctx context.Context, env *environment, c *client.Client, selected selection, namespace string) ([]storedOnly, error) {
	c = c.Fresh(client.Freshness{Consistent: true})
	if len(selected.keys) > 0 {
		return readNamed(ctx, env, c, selected)
	}
	all, err := a.list(ctx, env, c, selected, namespace, false)
	if err != nil || a.anySource {
		return all, err
	}
	if a.selector == "" && !slices.ContainsFunc(all, func(s storedOnly) bool { return !ofStore(s.object) }) {
		return all, nil // nothing hides an object of the store
	}
	stored, err := a.list(ctx, env, c, selected, namespace, true) // those too that an object of another source hides
	if err != nil {
		return nil, err
	}
	ours := map[config.Key]bool{}
	for _, s := range stored {
		ours[s.key] = true
	}
	elsewhere := slices.DeleteFunc(all, func(s storedOnly) bool { return ours[s.key] || ofStore(s.object) })
	if left := bySource(elsewhere); left != nil {
		env.Warn(cli.MapSlice(left.Errors, error.Error))
	}
	return stored, nil
}

// list lists what is selected of all sources, or of the store, by kind, namespace and name.
func (a *among) list(ctx context.Context, env *environment, c *client.Client, selected selection, namespace string, stored bool) ([]storedOnly, error) {
	var out []storedOnly
	for _, kind := range selected.kinds {
		in := ""
		if !a.allNamespaces {
			in = env.namespaceOf(kind, namespace)
		}
		list, err := c.List(ctx, client.Resource(kind), in, client.Selection{Labels: a.selector, Stored: stored})
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			if object := &list.Items[i]; !stored || ofStore(object) {
				out = append(out, storedOnly{keyIn(kind, object), object})
			}
		}
	}
	slices.SortStableFunc(out, func(x, y storedOnly) int {
		return cmp.Or(cmp.Compare(slices.IndexFunc(selected.kinds, isKind(x.key)), slices.IndexFunc(selected.kinds, isKind(y.key))),
			cmp.Compare(x.key.Namespace, y.key.Namespace), cmp.Compare(x.key.Name, y.key.Name))
	})
	return out, nil
}

func isKind(key config.Key) func(*schema.Schema) bool {
	return func(k *schema.Schema) bool { return k.GroupVersionKind == key.Kind }
}

func keyIn(kind *schema.Schema, object *unstructured.Unstructured) config.Key {
	return config.Key{Kind: kind.GroupVersionKind, Namespace: object.GetNamespace(), Name: object.GetName()}
}

// readNamed reads objects by their names, with one error for all that do not exist.
func readNamed(ctx context.Context, env *environment, c *client.Client, selected selection) ([]storedOnly, error) {
	var out []storedOnly
	var missing *multierror.Error
	for _, key := range selected.keys {
		kind := env.Schemas.Kind(key.Kind)
		object, err := readOne(ctx, c.Warning(env.warn), kind, key)
		switch {
		case apierrors.IsNotFound(err):
			missing = multierror.Append(missing, notFound(key, kind))
		case err != nil:
			return nil, err
		default:
			out = append(out, storedOnly{key, object})
		}
	}
	return out, missing.ErrorOrNil()
}

// readOne reads an object of the store, else that of another source, which the server refuses to
// change.
func readOne(ctx context.Context, c *client.Client, kind *schema.Schema, key config.Key) (*unstructured.Unstructured, error) {
	which := client.Selection{Stored: true, Fields: fields.OneTermEqualSelector("metadata.name", key.Name).String()}
	list, err := c.List(ctx, client.Resource(kind), key.Namespace, which)
	if err != nil {
		return nil, err
	}
	if len(list.Items) > 0 && ofStore(&list.Items[0]) {
		return &list.Items[0], nil
	}
	return c.Get(ctx, client.Resource(kind), key.Namespace, key.Name)
}

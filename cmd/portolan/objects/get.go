package objects

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-multierror"
	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/call"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/table"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

type getOptions struct {
	namespace     string
	allNamespaces bool
	output        string
	noHeaders     bool
	selector      string
	fields        string // --field-selector
	sorting       string // --sort-by
	labels        labelColumns
	absent        bool // --ignore-not-found
	freshness     client.Freshness
	watch         watchFlags
	others        bool  // with -w, tables have the column of the sources
	form          *form // what the user wrote behind -o, else nil
	// order is the order in which objects are shown: by namespace and name unless set.
	order func(a, b *unstructured.Unstructured) int
}

var getOutputs = []string{"table", "wide", "yaml", "json", "name"}

func newGetCommand(env *environment) *cobra.Command {
	var o getOptions
	c := &cobra.Command{
		Use: "get (KIND[,KIND...] | all | KIND NAME... | KIND/NAME...)", SuggestFor: []string{"list", "ls"},
		Short: "Show objects",
		Long: `Show objects: all of some kinds in a namespace, or those named. Kinds go by their
names, singular or plural, and by their short names; see portolan api-resources.
An object also goes by KIND/NAMESPACE/NAME, as all commands print it. "all" is all
kinds but secrets, users and tokens, as far as you may list them.

REV is the revision of the store at which an object or its status was last changed,
its metadata.resourceVersion. In wide tables PROGRAMMED is whether proxies have taken
the last change of an object, and how many of those concerned; ISSUES are the codes of
what is odd about it, which portolan describe explains. SOURCE is where an object is
from: the store, a directory, another control plane (xds://) or a cluster (kube://). It
is also in the tables of which an object is from elsewhere than the store, and with -w in
those of a mesh that has other sources. A warning on stderr names each source that cannot
be read as it is now, or has such objects in a form that is not served: portolan source
describe says why. With -w it comes also when that happens later.

A server answers from its memory, which is a moment behind the store; right
after a change made through another server, --min-revision with the revision
that the change printed waits for it. --revision shows objects as they were.

-l takes labels as Kubernetes does: app=web,tier!=back, 'version in (v1, v2)', !old.
--field-selector takes metadata.name and metadata.namespace. -L and --show-labels add
columns at the end, with the labels of the objects themselves.
-w takes several kinds and objects too, and goes on after a restart of the server
where it was; --watch-only leaves out what is there at first.

The templates of -o are those of kubectl: jsonpath and go-template, in which several
objects are in .items, and custom-columns, a table with columns of yours. jsonpath-file,
go-template-file and custom-columns-file read them from a file. --sort-by takes a path as
custom-columns does, and sorts each kind by itself.

Exit codes: 0 is also that a list is empty; 1 is that a named object is not there, unless
--ignore-not-found is given.`,
		Example: `  portolan get vs -n shop
  portolan get serviceentries,workloadentries -A -o wide
  portolan get virtualservice/reviews -n shop -o yaml
  portolan get virtualservice/reviews -n shop --min-revision 42
  portolan get vs -A --revision 42
  portolan get serviceentries -A -l 'team in (a, b)' -w
  portolan get vs,dr -n shop -w
  portolan get vs -A -o jsonpath='{range .items[*]}{.metadata.name}{"\n"}{end}'
  portolan get all -n shop -L app,version
  portolan get se -A --sort-by .metadata.creationTimestamp
  portolan get se -n shop -o custom-columns=NAME:.metadata.name,HOSTS:.spec.hosts[*]
  portolan get vs/reviews -n shop --ignore-not-found -o go-template='{{.metadata.name}}'`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("name what to get: KIND, KIND NAME or KIND/NAME")
			}
			return nil
		},
		ValidArgsFunction: completeBeside(env),
		RunE: func(c *cobra.Command, args []string) error {
			env := env.withSide()
			selected, err := o.selection(env, args)
			if err != nil {
				return err
			}
			return o.show(c.Context(), env, selected)
		},
	}
	o.registerShow(c, "objects")
	f := c.Flags()
	f.StringVarP(&o.selector, "selector", "l", "", "only objects with these labels, such as app=web,'version in (v1, v2)'")
	f.StringVar(&o.fields, "field-selector", "", "only objects with these values of fields, such as metadata.name=reviews")
	f.StringVar(&o.sorting, "sort-by", "", "sort the objects of each kind by what is at this path, such as .metadata.name")
	o.labels.register(c)
	f.BoolVar(&o.absent, "ignore-not-found", false, "say nothing of what does not exist, and exit with 0")
	f.Int64Var(&o.freshness.MinRevision, "min-revision", 0, "wait until the server shows this revision of the store")
	f.BoolVar(&o.freshness.Consistent, "consistent", false, "show all that was acknowledged until now: the server asks its store first")
	f.Int64Var(&o.freshness.Exact, "revision", 0, "show the objects as they were at this revision of the store")
	return c
}

// registerShow adds the flags of all commands that show objects: in which namespace, in what form,
// and whether from now on.
func (o *getOptions) registerShow(c *cobra.Command, what string) {
	f := c.Flags()
	f.StringVarP(&o.namespace, "namespace", "n", "", `namespace of the `+what+` (default $PORTOLAN_NAMESPACE, else "default")`)
	f.BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "show the "+what+" of all namespaces")
	f.StringVarP(&o.output, "output", "o", "table", "form of the output: "+getForms())
	f.BoolVar(&o.noHeaders, "no-headers", false, "leave the headers of tables out")
	o.watch.register(c)
	_ = c.RegisterFlagCompletionFunc("output", completeGetOutput)
}

// show shows what is selected, once or from now on.
func (o *getOptions) show(ctx context.Context, env *environment, selected selection) error {
	if o.watch.asked() {
		return o.follow(ctx, env, selected)
	}
	return o.run(ctx, env, selected)
}

// objectsOfKind holds the objects of one kind, by namespace and name.
type objectsOfKind struct {
	kind    *schema.Schema
	objects []*unstructured.Unstructured
}

func (o *getOptions) run(ctx context.Context, env *environment, selected selection) error {
	var all []objectsOfKind
	var missing error
	var refused refusedKinds
	err := env.Call(ctx, func(ctx context.Context, c *client.Client) (err error) {
		c = c.Fresh(o.freshness).Warning(env.warn)
		for _, kind := range selected.kinds {
			f := objectsOfKind{kind: kind}
			if len(selected.keys) > 0 {
				f.objects, err = o.getNamed(ctx, c, kind, selected.keys, &missing)
			} else {
				f.objects, err = o.list(ctx, env, c, kind)
			}
			if selected.every && refused.add(kind, err) {
				continue
			}
			if err != nil {
				return o.explainNotYet(err)
			}
			slices.SortFunc(f.objects, o.compare)
			all = append(all, f)
		}
		return refused.ifOnly(len(all))
	})
	if err = cmp.Or(err, o.sort(all)); err != nil {
		return err
	}
	refused.tell(env)
	if len(selected.keys) == 0 {
		o.tellEmpty(env, selected, all)
	}
	if len(selected.keys) == 0 || hasObjects(all) {
		err = o.print(env, all, len(selected.keys) == 1)
	}
	if o.absent {
		missing = nil
	}
	return errors.Join(err, missing)
}

func hasObjects(all []objectsOfKind) bool {
	return slices.ContainsFunc(all, func(f objectsOfKind) bool { return len(f.objects) > 0 })
}

// sort sorts the objects of each kind by --sort-by.
func (o *getOptions) sort(all []objectsOfKind) error {
	if o.sorting == "" {
		return nil
	}
	path, err := parseFieldPath(o.sorting)
	if err != nil {
		return err
	}
	for _, f := range all {
		if err := sortBy(path, f.objects); err != nil {
			return err
		}
	}
	return nil
}

// compare compares two objects in the order in which they are shown.
func (o *getOptions) compare(a, b *unstructured.Unstructured) int {
	if o.order != nil {
		return o.order(a, b)
	}
	return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
}

func (o *getOptions) list(ctx context.Context, env *environment, c *client.Client, kind *schema.Schema) ([]*unstructured.Unstructured, error) {
	list, err := c.List(ctx, client.Resource(kind), o.namespaceFor(env, kind), o.selectionOf(nil))
	if err != nil {
		return nil, err
	}
	objects := make([]*unstructured.Unstructured, len(list.Items))
	for i := range list.Items {
		objects[i] = &list.Items[i]
	}
	return objects, nil
}

// explainNotYet adds to the error of a server that is behind --min-revision what to do.
func (o *getOptions) explainNotYet(err error) error {
	if call.NotYet(err) {
		return fmt.Errorf("%w: the server has not seen revision %d of its store yet: try again, or look at portolan_cache_staleness_seconds of its metrics", err, o.freshness.MinRevision)
	}
	return err
}

// notFound returns the error that an object does not exist, or did not at the revision.
func (o *getOptions) notFound(key config.Key, kind *schema.Schema) error {
	if o.freshness.Exact > 0 {
		return fmt.Errorf("%s: there was none at revision %d: see when there was with portolan history %s", key, o.freshness.Exact, key)
	}
	return notFound(key, kind)
}

func notFound(key config.Key, kind *schema.Schema) error {
	return fmt.Errorf("%s: not found: see those there are with portolan get %s -A", key, kind.Plural)
}

// unserved returns the error that an object is not found. The server warns of one that a source has in a form
// that is not served.
func (e *environment) unserved(ctx context.Context, key config.Key) error {
	kind := e.Schemas.Kind(key.Kind)
	err := e.Call(ctx, func(ctx context.Context, c *client.Client) error {
		_, err := c.Warning(e.warn).Get(ctx, client.Resource(kind), key.Namespace, key.Name)
		return err
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return notFound(key, kind)
}

// getNamed gets those of the keyed objects that are of this kind. It adds an error to missing for
// each that does not exist.
func (o *getOptions) getNamed(ctx context.Context, c *client.Client, kind *schema.Schema, keys []config.Key, missing *error) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	for _, key := range keys {
		if key.Kind != kind.GroupVersionKind {
			continue
		}
		object, err := c.Get(ctx, client.Resource(kind), key.Namespace, key.Name)
		switch {
		case apierrors.IsNotFound(err):
			*missing = multierror.Append(*missing, o.notFound(key, kind))
		case err != nil:
			return nil, err
		default:
			objects = append(objects, object)
		}
	}
	return objects, nil
}

// rows returns the table of one kind. If there are several kinds, the names include the kind.
// A wide table has the same columns first; its further columns follow the age.
func (o *getOptions) rows(env *environment, f objectsOfKind, several bool) ([][]string, error) {
	wide := o.output == "wide"
	columns := o.columns(f, wide)
	header := cli.MapSlice(columns, func(c table.Column) string { return strings.ToUpper(c.Name) })
	header = append(header, o.labels.headers()...)
	if o.allNamespaces {
		header = append([]string{"NAMESPACE"}, header...)
	}
	rows := [][]string{header}
	if o.noHeaders {
		rows = nil
	}
	for _, object := range f.objects {
		spec, err := specOf(f.kind, object)
		if err != nil {
			return nil, err
		}
		seen := typed(f.kind, object, spec)
		var row []string
		if o.allNamespaces {
			row = append(row, object.GetNamespace())
		}
		for _, c := range columns {
			text := c.Text(seen, wide, env.Now())
			if several && c.IsName() {
				text = strings.ToLower(f.kind.Kind) + "/" + text
			}
			row = append(row, text)
		}
		row = append(row, o.labels.cells(object.GetLabels())...)
		rows = append(rows, row)
	}
	return rows, nil
}

// columns returns the columns of the table of one kind. That of the sources is in each table of which
// an object is not the store's, and with -w in all or none: there the columns must stay.
func (o *getOptions) columns(f objectsOfKind, wide bool) []table.Column {
	others := o.others || !o.watch.asked() && slices.ContainsFunc(f.objects, func(object *unstructured.Unstructured) bool { return !ofStore(object) })
	return slices.DeleteFunc(table.Columns(f.kind.GroupVersionKind), func(c table.Column) bool {
		return c.Wide && !wide && !(others && c.Name == table.SourceName)
	})
}

// created returns when an object was created. It is zero if unknown: an object in a file that
// does not say so is served with time 0.
func created(object *unstructured.Unstructured) time.Time {
	at := object.GetCreationTimestamp().Time
	if at.Unix() <= 0 {
		return time.Time{}
	}
	return at
}

// specOf drops fields that only a newer server knows.
func specOf(kind *schema.Schema, object *unstructured.Unstructured) (any, error) {
	content := config.Content(object.Object)
	if content == nil {
		return kind.Codec.New(), nil
	}
	var spec any
	text, err := json.Marshal(content)
	if err == nil {
		spec, err = kind.Codec.ReadJSON(text)
	}
	if err != nil {
		return nil, fmt.Errorf("the spec of %s %s/%s cannot be read: %w", kind.Singular, object.GetNamespace(), object.GetName(), err)
	}
	return spec, nil
}

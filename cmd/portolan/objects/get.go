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

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/call"

	"github.com/hashicorp/go-multierror"
	"github.com/spf13/cobra"
	yamlv2 "go.yaml.in/yaml/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/util/jsonpath"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

type getOptions struct {
	namespace     string
	allNamespaces bool
	output        string
	noHeaders     bool
	selector      string
	freshness     client.Freshness
	watch         watchFlags
	template      *jsonpath.JSONPath // from -o jsonpath=, else nil
	// fields selects objects to list by their fields, and order is the order in which they are
	// shown: by namespace and name unless set.
	fields string
	order  func(a, b *unstructured.Unstructured) int
}

var getOutputs = []string{"table", "wide", "yaml", "json", "name"}

// templatePrefix begins a value of -o that is a template.
const templatePrefix = "jsonpath="

func newGetCommand(env *environment) *cobra.Command {
	var o getOptions
	c := &cobra.Command{
		Use: "get (KIND[,KIND...] | KIND NAME... | KIND/NAME...)", SuggestFor: []string{"list", "ls"},
		Short: "Show objects",
		Long: `Show objects: all of some kinds in a namespace, or those named. Kinds go by their
names, singular or plural, and by their short names; see portolan api-resources.
An object also goes by KIND/NAMESPACE/NAME, as all commands print it.

REV is the revision of the store at which an object or its status was last changed,
its metadata.resourceVersion. In wide tables PROGRAMMED is whether proxies have taken
the last change of an object, and how many of those concerned; ISSUES are the codes of
what is odd about it, which portolan describe explains.

A server answers from its memory, which is a moment behind the store; right
after a change made through another server, --min-revision with the revision
that the change printed waits for it. --revision shows objects as they were.

-l takes labels as Kubernetes does: app=web,tier!=back, 'version in (v1, v2)', !old.
-w takes several kinds and objects too, and goes on after a restart of the server
where it was. -o jsonpath=TEMPLATE prints
what a template of kubectl does; several objects are in .items.`,
		Example: `  portolan get vs -n shop
  portolan get serviceentries,workloadentries -A -o wide
  portolan get virtualservice/reviews -n shop -o yaml
  portolan get virtualservice/reviews -n shop --min-revision 42
  portolan get vs -A --revision 42
  portolan get serviceentries -A -l 'team in (a, b)' -w
  portolan get vs,dr -n shop -w
  portolan get vs -A -o jsonpath='{range .items[*]}{.metadata.name}{"\n"}{end}'`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("name what to get: KIND, KIND NAME or KIND/NAME")
			}
			return nil
		},
		ValidArgsFunction: completeObjects(env),
		RunE: func(c *cobra.Command, args []string) error {
			env := env.withSide()
			selected, err := o.selection(env, args)
			if err != nil {
				return err
			}
			if o.watch.enabled {
				return o.follow(c.Context(), env, selected)
			}
			return o.run(c.Context(), env, selected)
		},
	}
	f := c.Flags()
	f.StringVarP(&o.namespace, "namespace", "n", "", `namespace of the objects (default $PORTOLAN_NAMESPACE, else "default")`)
	f.BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "show the objects of all namespaces")
	f.StringVarP(&o.output, "output", "o", "table", "form of the output: "+getForms())
	f.StringVarP(&o.selector, "selector", "l", "", "only objects with these labels, such as app=web,'version in (v1, v2)'")
	f.BoolVar(&o.noHeaders, "no-headers", false, "leave the headers of tables out")
	f.Int64Var(&o.freshness.MinRevision, "min-revision", 0, "wait until the server shows this revision of the store")
	f.BoolVar(&o.freshness.Consistent, "consistent", false, "show all that was acknowledged until now: the server asks its store first")
	f.Int64Var(&o.freshness.Exact, "revision", 0, "show the objects as they were at this revision of the store")
	o.watch.register(c)
	cli.CompleteOutput(c, getOutputs...)
	return c
}

// getForms lists the values of -o, for people.
func getForms() string {
	return cli.Alternatives(append(slices.Clone(getOutputs), templatePrefix+"TEMPLATE"))
}

// checkOutput checks and parses -o.
func (o *getOptions) checkOutput() error {
	text, isTemplate := strings.CutPrefix(o.output, templatePrefix)
	switch {
	case slices.Contains(getOutputs, o.output):
		return nil
	case !isTemplate:
		return exit.With(exit.Usage, fmt.Errorf("-o %q: use %s", o.output, getForms()))
	case !strings.Contains(text, "{"):
		return exit.With(exit.Usage, fmt.Errorf("-o %s: a template has its paths in braces, as in -o %s'{.metadata.name}'", o.output, templatePrefix))
	}
	o.template = jsonpath.New("-o").AllowMissingKeys(true)
	if err := o.template.Parse(text); err != nil {
		return exit.With(exit.Usage, fmt.Errorf("-o %s: %w", o.output, err))
	}
	return nil
}

func (o *getOptions) selection(env *environment, args []string) (selection, error) {
	if err := o.checkOutput(); err != nil {
		return selection{}, err
	}
	if _, err := labels.Parse(o.selector); err != nil {
		return selection{}, exit.With(exit.Usage, fmt.Errorf("-l %q: %w", o.selector, err))
	}
	if o.allNamespaces && o.namespace != "" {
		return selection{}, exit.With(exit.Usage, errors.New("-A is all namespaces, and -n is one: leave one of them out"))
	}
	if err := o.checkFreshness(); err != nil {
		return selection{}, err
	}
	selected, err := selectObjects(env, args, o.namespace)
	if err != nil {
		return selection{}, err
	}
	if o.allNamespaces && len(selected.keys) > 0 {
		return selection{}, exit.With(exit.Usage, errors.New("an object is in one namespace: name it with -n instead of -A"))
	}
	if o.selector != "" && len(selected.keys) > 0 {
		return selection{}, exit.With(exit.Usage, errors.New("-l selects among all objects of a kind: leave it out, or the names"))
	}
	return selected, o.checkWatch()
}

// selectionOf returns the selection of objects to list: by labels, or one by its name.
func (o *getOptions) selectionOf(keys []config.Key) client.Selection {
	if len(keys) > 0 {
		return client.Selection{Fields: fields.OneTermEqualSelector("metadata.name", keys[0].Name).String()}
	}
	return client.Selection{Labels: o.selector, Fields: o.fields}
}

// namespaceFor returns the namespace of the objects to list, empty for all.
func (o *getOptions) namespaceFor(env *environment, kind *schema.Schema) string {
	if o.allNamespaces {
		return ""
	}
	return env.namespaceOf(kind, o.namespace)
}

// checkFreshness refuses an invalid revision, and more than one flag for how new the answer
// must be.
func (o *getOptions) checkFreshness() error {
	f := o.freshness
	switch {
	case f.Exact != 0 && (f.MinRevision != 0 || f.Consistent):
		return exit.With(exit.Usage, errors.New("--revision is one revision, whatever there is now: leave --min-revision and --consistent out"))
	case f.Exact != 0:
		return checkRevision("--revision", f.Exact)
	case f.MinRevision != 0:
		return checkRevision("--min-revision", f.MinRevision)
	}
	return nil
}

// objectsOfKind holds the objects of one kind, by namespace and name.
type objectsOfKind struct {
	kind    *schema.Schema
	objects []*unstructured.Unstructured
}

func (o *getOptions) run(ctx context.Context, env *environment, selected selection) error {
	var all []objectsOfKind
	var missing error
	err := env.Call(ctx, func(ctx context.Context, c *client.Client) (err error) {
		c = c.Fresh(o.freshness)
		for _, kind := range selected.kinds {
			f := objectsOfKind{kind: kind}
			if len(selected.keys) > 0 {
				f.objects, err = o.getNamed(ctx, c, kind, selected.keys, &missing)
			} else {
				f.objects, err = o.list(ctx, env, c, kind)
			}
			if err != nil {
				return o.explainNotYet(err)
			}
			slices.SortFunc(f.objects, o.compare)
			all = append(all, f)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if len(selected.keys) == 0 {
		o.tellEmpty(env, all)
	}
	if missing == nil || slices.ContainsFunc(all, func(f objectsOfKind) bool { return len(f.objects) > 0 }) {
		err = o.print(env, all, len(selected.keys) == 1)
	}
	return errors.Join(err, missing)
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

// tellEmpty prints the kinds without objects.
func (o *getOptions) tellEmpty(env *environment, all []objectsOfKind) {
	at, with := "", ""
	if o.freshness.Exact > 0 {
		at = fmt.Sprintf(" at revision %d", o.freshness.Exact)
	}
	if o.selector != "" {
		with = " with labels " + o.selector
	}
	for _, f := range all {
		switch {
		case len(f.objects) > 0:
		case o.allNamespaces || f.kind.ClusterScoped:
			fmt.Fprintf(env.Stderr, "No %s%s found%s.\n", f.kind.Plural, with, at)
		default:
			fmt.Fprintf(env.Stderr, "No %s%s found in namespace %s%s; -A looks in all.\n", f.kind.Plural, with, o.namespaceFor(env, f.kind), at)
		}
	}
}

// one means that the user named one object, which JSON shows without a list around it.
func (o *getOptions) print(env *environment, all []objectsOfKind, one bool) error {
	switch o.output {
	case "yaml":
		return printYAML(env, all)
	case "json":
		return writeJSON(env, oneOrList(all, one))
	case "name":
		for _, f := range all {
			for _, object := range f.objects {
				key := config.Key{Kind: f.kind.GroupVersionKind, Namespace: object.GetNamespace(), Name: object.GetName()}
				fmt.Fprintln(env.Stdout, key)
			}
		}
		return nil
	}
	if o.template != nil {
		return o.template.Execute(env.Stdout, oneOrList(all, one))
	}
	separator := ""
	for _, f := range all {
		if len(f.objects) == 0 {
			continue
		}
		fmt.Fprint(env.Stdout, separator)
		separator = "\n"
		rows, err := o.rows(env, f, len(all) > 1)
		if err != nil {
			return err
		}
		if err := cli.WriteTable(env.Stdout, rows); err != nil {
			return err
		}
	}
	return nil
}

func printYAML(env *environment, all []objectsOfKind) error {
	separator := ""
	for _, f := range all {
		for _, object := range f.objects {
			text, err := yamlv2.Marshal(object.Object)
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintf(env.Stdout, "%s%s", separator, text); err != nil {
				return err
			}
			separator = "---\n"
		}
	}
	return nil
}

func oneOrList(all []objectsOfKind, one bool) any {
	objects := []any{}
	for _, f := range all {
		for _, object := range f.objects {
			objects = append(objects, object.Object)
		}
	}
	if one {
		return objects[0]
	}
	return listOf(objects)
}

func listOf(objects []any) any {
	return struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Items      []any  `json:"items"`
	}{"v1", "List", objects}
}

// writeJSON writes indented JSON for programs and people.
func writeJSON(env *environment, value any) error {
	return cli.WriteDocument(env.Stdout, "json", value)
}

// rows returns the table of one kind. If there are several kinds, the names include the kind.
// A wide table has the same columns first; its further columns follow the age.
func (o *getOptions) rows(env *environment, f objectsOfKind, several bool) ([][]string, error) {
	columns := columnsOf(f.kind.GroupVersionKind)
	columns = slices.Concat(
		slices.DeleteFunc(slices.Clone(columns), func(c column) bool { return c.wide }),
		[]column{
			{header: "REV", state: (*unstructured.Unstructured).GetResourceVersion},
			{header: "AGE", state: func(object *unstructured.Unstructured) string {
				return cli.CellText(cli.Age(env.Now(), created(object)))
			}},
			{header: "PROGRAMMED", wide: true, state: programmedOf},
			{header: "ISSUES", wide: true, state: issuesOf},
		},
		slices.DeleteFunc(columns, func(c column) bool { return !c.wide }),
	)
	wide := o.output == "wide"
	columns = slices.DeleteFunc(columns, func(c column) bool { return c.wide && !wide })
	header := append([]string{"NAME"}, cli.MapSlice(columns, func(c column) string { return c.header })...)
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
		var row []string
		if o.allNamespaces {
			row = append(row, object.GetNamespace())
		}
		name := object.GetName()
		if several {
			name = strings.ToLower(f.kind.Kind) + "/" + name
		}
		row = append(row, name)
		for _, c := range columns {
			row = append(row, c.text(object, spec, wide))
		}
		rows = append(rows, row)
	}
	return rows, nil
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

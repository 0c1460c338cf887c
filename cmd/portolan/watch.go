package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	yamlv2 "go.yaml.in/yaml/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/portolan-mesh/portolan/cache/rest/client"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/retry"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// watchFlags are the flags of get that follow changes.
type watchFlags struct {
	enabled, events bool
}

func (w *watchFlags) register(c *cobra.Command) {
	c.Flags().BoolVarP(&w.enabled, "watch", "w", false, "show the objects, and then each that changes, until interrupted")
	c.Flags().BoolVar(&w.events, "output-watch-events", false, "with -w, say of each object whether it was ADDED, MODIFIED or DELETED")
}

// checkWatch refuses what -w cannot follow.
func (o *getOptions) checkWatch(s selection) error {
	switch {
	case o.watch.events && !o.watch.enabled:
		return usageError{errors.New("--output-watch-events says what -w sees: add it")}
	case !o.watch.enabled:
		return nil
	case o.watch.events && (o.output == "name" || o.template != nil):
		return usageError{fmt.Errorf("--output-watch-events has no place in -o %s: use %s", o.output, alternatives([]string{"table", "wide", "yaml", "json"}))}
	case o.freshness.Exact != 0:
		return usageError{errors.New("-w shows what changes from now on, and --revision what was: leave one of them out")}
	case len(s.kinds) > 1 || len(s.keys) > 1:
		return usageError{errors.New("-w follows one object, or the objects of one kind")}
	}
	return nil
}

// follow prints the objects, and then each that changes, until ctx ends. It goes on
// where it was when a server that was away is back.
func (o *getOptions) follow(ctx context.Context, env *environment, s selection) error {
	f := follower{options: o, env: env, kind: s.kinds[0], which: o.which(s.keys), namespace: o.within(env, s.kinds[0]), known: map[string]*unstructured.Unstructured{}}
	if len(s.keys) > 0 {
		f.namespace = s.keys[0].Namespace
	}
	if o.watch.events {
		f.widths = []int{len(watch.Modified)} // the longest
	}
	err := env.call(ctx, func(ctx context.Context, c *client.Client) error { return f.list(ctx, c.Fresh(o.freshness)) })
	switch {
	case err != nil:
		return o.explainNotYet(err)
	case len(f.known) == 0 && len(s.keys) > 0:
		return notFound(s.keys[0], f.kind)
	case len(f.known) == 0:
		o.tellEmpty(env, []found{{kind: f.kind}})
	}
	lasting := *env
	lasting.patience = 0 // run says that it waits
	f.env = &lasting
	err = lasting.callFor(ctx, 0, f.run)
	if ctx.Err() != nil {
		return nil // the user has seen enough
	}
	return err
}

// follower prints the changes of the objects of one kind.
type follower struct {
	options   *getOptions
	env       *environment
	kind      *schema.Schema
	namespace string
	which     client.Selection

	revision string                                // up to which changes were printed; empty when it is to be asked
	known    map[string]*unstructured.Unstructured // as printed last, by namespace and name
	printed  bool
	widths   []int // of the columns
	away     bool  // the server does not answer, and the user knows
}

// run watches until ctx ends or the server refuses for good.
func (f *follower) run(ctx context.Context, c *client.Client) error {
	pause := retry.New(100*time.Millisecond, 5*time.Second)
	for ctx.Err() == nil {
		err := f.once(ctx, c, pause)
		switch {
		case err == nil: // the server ended the watch, as at its end
		case client.Expired(err):
			fmt.Fprintf(f.env.stderr, "The server does not know what changed after revision %s any more; listing the objects again.\n", f.revision)
			f.revision = ""
		case passing(err):
			if !f.away {
				fmt.Fprintf(f.env.stderr, "The watch goes on from revision %s as soon as it can: %v\n", f.revision, err)
			}
			f.away = true
		default:
			return err
		}
		_ = pause.Wait(ctx)
	}
	return ctx.Err()
}

// passing says whether an error may go by itself.
func passing(err error) bool {
	var unreachable *client.UnreachableError
	return errors.As(err, &unreachable) || client.NotYet(err) || apierrors.IsServiceUnavailable(err) ||
		apierrors.IsTooManyRequests(err) || apierrors.IsTimeout(err) || apierrors.IsInternalError(err)
}

// once lists the objects where the revision is not known, and watches once.
func (f *follower) once(ctx context.Context, c *client.Client, pause *retry.Backoff) error {
	if f.revision == "" {
		if err := f.env.call(ctx, f.list); err != nil {
			return err
		}
	}
	return c.Watch(ctx, client.Resource(f.kind), f.namespace, f.which, f.revision, func(e client.Event) error {
		f.away = false
		pause.Reset()
		f.revision = e.Object.GetResourceVersion()
		return f.take(e)
	})
}

// list prints how the objects differ from those printed last.
func (f *follower) list(ctx context.Context, c *client.Client) error {
	list, err := c.List(ctx, client.Resource(f.kind), f.namespace, f.which)
	if err != nil {
		return err
	}
	var events []client.Event
	gone := maps.Clone(f.known)
	for i := range list.Items {
		object := &list.Items[i]
		delete(gone, nameOf(object))
		kind := watch.Added
		if old := f.known[nameOf(object)]; old != nil {
			kind = watch.Modified
		}
		events = append(events, client.Event{Type: kind, Object: object})
	}
	for _, name := range slices.Sorted(maps.Keys(gone)) {
		events = append(events, client.Event{Type: watch.Deleted, Object: gone[name]})
	}
	f.revision = list.GetResourceVersion()
	return f.take(events...)
}

func nameOf(object *unstructured.Unstructured) string {
	return object.GetNamespace() + "/" + object.GetName()
}

// take prints events, but for those that tell nothing new.
func (f *follower) take(events ...client.Event) error {
	events = slices.DeleteFunc(events, func(e client.Event) bool {
		name := nameOf(e.Object)
		old := f.known[name]
		switch {
		case e.Type == watch.Bookmark:
			return true
		case e.Type == watch.Deleted:
			delete(f.known, name)
			return old == nil
		}
		f.known[name] = e.Object
		return old != nil && old.GetResourceVersion() == e.Object.GetResourceVersion()
	})
	if len(events) == 0 {
		return nil
	}
	defer func() { f.printed = true }()
	switch {
	case f.options.output == "table" || f.options.output == "wide":
		return f.printRows(events)
	default:
		for _, e := range events {
			if err := f.printObject(e); err != nil {
				return err
			}
			f.printed = true
		}
		return nil
	}
}

// printObject prints the object of one event in the form of -o.
func (f *follower) printObject(e client.Event) error {
	var value any = e.Object.Object
	if f.options.watch.events {
		value = map[string]any{"type": string(e.Type), "object": e.Object.Object}
	}
	switch {
	case f.options.template != nil:
		return f.options.template.Execute(f.env.stdout, e.Object.Object)
	case f.options.output == "json":
		return writeJSON(f.env, value)
	case f.options.output == "yaml":
		text, err := yamlv2.Marshal(value)
		if err == nil {
			_, err = fmt.Fprintf(f.env.stdout, "%s%s", f.separator(), text)
		}
		return err
	}
	key := config.Key{Kind: f.kind.GroupVersionKind, Namespace: e.Object.GetNamespace(), Name: e.Object.GetName()}
	_, err := fmt.Fprintln(f.env.stdout, key)
	return err
}

// separator stands before a YAML document, unless it is the first.
func (f *follower) separator() string {
	if f.printed {
		return "---\n"
	}
	return ""
}

// printRows prints the rows of events, below a header the first time.
func (f *follower) printRows(events []client.Event) error {
	o := *f.options
	o.noHeaders = o.noHeaders || f.printed
	objects := each(events, func(e client.Event) *unstructured.Unstructured { return e.Object })
	rows, err := o.rows(f.env, found{f.kind, objects}, false)
	if err != nil {
		return err
	}
	if o.watch.events {
		header := len(rows) - len(events) // 1 with a header, 0 without
		for i := range rows {
			first := "EVENT"
			if i >= header {
				first = string(events[i-header].Type)
			}
			rows[i] = append([]string{first}, rows[i]...)
		}
	}
	f.widths = alignRows(f.env.stdout, rows, f.widths)
	return nil
}

// alignRows prints rows of a table whose earlier rows are printed: columns have at least
// the widths of those. It returns the widths, which the next rows get.
func alignRows(out io.Writer, rows [][]string, widths []int) []int {
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(shown(cell)))
		}
	}
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			fmt.Fprintf(&line, "%-*s", widths[i]+columnGap, shown(cell))
		}
		fmt.Fprintln(out, strings.TrimRight(line.String(), " "))
	}
	return widths
}

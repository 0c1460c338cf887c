package objects

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/hashicorp/go-multierror"
	"github.com/spf13/cobra"
	yamlv2 "go.yaml.in/yaml/v2"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/help"
	"github.com/portolan-mesh/portolan/cmd/portolan/login"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/call"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/cmd/portolan/serve"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/retry"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// watchFlags holds the flags of get for following changes.
type watchFlags struct {
	enabled, only, events bool
}

// asked says whether changes are to be followed.
func (w *watchFlags) asked() bool { return w.enabled || w.only }

func (w *watchFlags) register(c *cobra.Command) {
	c.Flags().BoolVarP(&w.enabled, "watch", "w", false, "show the objects, and then each that changes, until interrupted")
	c.Flags().BoolVar(&w.only, "watch-only", false, "show each object that changes from now on, until interrupted, and not those that are there")
	c.Flags().BoolVar(&w.events, "output-watch-events", false, "with -w, say of each object whether it was ADDED, MODIFIED or DELETED")
}

// checkWatch refuses flags that do not work with -w.
func (o *getOptions) checkWatch() error {
	switch {
	case o.watch.events && !o.watch.asked():
		return exit.With(exit.Usage, errors.New("--output-watch-events says what -w sees: add it"))
	case !o.watch.asked():
		return nil
	case o.watch.events && (o.output == "name" || o.form != nil):
		return exit.With(exit.Usage, fmt.Errorf("--output-watch-events has no place in -o %s: use %s", o.output, help.Alternatives([]string{"table", "wide", "yaml", "json"})))
	case o.freshness.Exact != 0:
		return exit.With(exit.Usage, errors.New("-w shows what changes from now on, and --revision what was: leave one of them out"))
	}
	return nil
}

// follow prints the objects, then each change, until ctx ends. After an outage of the server
// it continues where it was.
func (o *getOptions) follow(ctx context.Context, env *environment, s selection) error {
	lasting := &environment{env.With(func(e *cli.Environment) { e.Patience = 0 })} // run prints that it waits
	p := &page{options: o, env: lasting, several: len(s.kinds) > 1, widths: map[*schema.Schema][]int{}, warnings: map[*follower][]string{}}
	var all []*follower
	for _, kind := range s.kinds {
		if len(s.keys) == 0 {
			all = append(all, p.follower(kind, o.namespaceFor(env, kind), o.selectionOf(nil)))
		}
		for _, key := range s.keys {
			if key.Kind == kind.GroupVersionKind {
				all = append(all, p.follower(kind, key.Namespace, o.selectionOf([]config.Key{key})))
			}
		}
	}
	var refused refusedKinds
	err := env.Call(ctx, func(ctx context.Context, c *client.Client) (err error) {
		if o.others, err = o.besideStore(ctx, c); err != nil {
			return err
		}
		var served []*follower
		for _, f := range all {
			err := f.list(ctx, c.Fresh(o.freshness))
			if s.every && refused.add(f.kind, err) {
				continue
			}
			if err != nil {
				return err
			}
			f.silent, served = false, append(served, f)
		}
		all = served
		return refused.ifOnly(len(all))
	})
	if err != nil {
		return o.explainNotYet(err)
	}
	refused.tell(env)
	if err := o.tellMissing(env, s, all); err != nil {
		return err
	}
	group, within := errgroup.WithContext(ctx)
	for _, f := range all {
		group.Go(func() error { return lasting.CallFor(within, 0, f.run) })
	}
	err = group.Wait()
	if ctx.Err() != nil {
		return nil // the user has stopped it
	}
	return err
}

// besideStore says whether the tables of a watch have the column of the sources from the beginning: the
// server has objects of other sources than the store, or does not tell this user.
func (o *getOptions) besideStore(ctx context.Context, c *client.Client) (bool, error) {
	if o.output != "table" {
		return false, nil
	}
	var list serve.SourceList
	err := c.JSON(ctx, serve.SourcesPath, &list)
	switch {
	case apierrors.IsForbidden(err):
		return true, nil
	case apierrors.IsNotFound(err): // an older server
		return false, nil
	}
	return slices.ContainsFunc(list.Items, func(s serve.SourceStatus) bool { return !s.Writable && s.OfMesh() }), err
}

// tellMissing prints the kinds without objects. It returns an error if a named object does not
// exist.
func (o *getOptions) tellMissing(env *environment, s selection, all []*follower) error {
	if len(s.keys) == 0 {
		o.tellEmpty(env, s, cli.MapSlice(all, func(f *follower) objectsOfKind { return objectsOfKind{f.kind, slices.Collect(maps.Values(f.known))} }))
		return nil
	}
	if o.absent {
		return nil
	}
	var missing error
	for _, key := range s.keys {
		there := slices.ContainsFunc(all, func(f *follower) bool {
			return f.kind.GroupVersionKind == key.Kind && f.known[key.Namespace+"/"+key.Name] != nil
		})
		if !there {
			kind := s.kinds[slices.IndexFunc(s.kinds, func(k *schema.Schema) bool { return k.GroupVersionKind == key.Kind })]
			missing = multierror.Append(missing, notFound(key, kind))
		}
	}
	return missing
}

// page is the output that all followers share; one prints at a time.
type page struct {
	options *getOptions
	env     *environment
	several bool // several kinds are followed

	mu     sync.Mutex
	last   *schema.Schema           // the kind printed last, nil if nothing was printed; guarded by mu
	widths map[*schema.Schema][]int // column widths by kind; guarded by mu
	// warnings are those of the last answer to each follower; guarded by mu.
	warnings map[*follower][]string
}

// warn prints the warnings of an answer to a follower that no follower had before.
func (p *page) warn(to *follower, warnings []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	had := slices.Concat(slices.Collect(maps.Values(p.warnings))...)
	for _, w := range warnings {
		if !slices.Contains(had, w) {
			p.env.PrintWarning(w)
		}
	}
	p.warnings[to] = warnings
}

func (p *page) follower(kind *schema.Schema, namespace string, which client.Selection) *follower {
	if p.options.watch.events {
		p.widths[kind] = []int{len(watch.Modified)} // the longest event type
	}
	return &follower{page: p, kind: kind, namespace: namespace, which: which, known: map[string]*unstructured.Unstructured{}, silent: p.options.watch.only}
}

// printMessage prints a message to the user besides the objects.
func (p *page) printMessage(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.env.Stderr, format, args...)
}

// follower prints the changes of the objects of one kind.
type follower struct {
	page      *page
	kind      *schema.Schema
	namespace string
	which     client.Selection

	revision string                                // the revision up to which changes were printed; empty before a list
	known    map[string]*unstructured.Unstructured // objects as last printed, by namespace and name
	away     bool                                  // the server does not answer, and the user was told
	again    bool                                  // the server refused the token, and the next one is tried
	silent   bool                                  // what is there at first is not printed
}

// run watches until ctx ends, or the server refuses with an error that does not pass.
func (f *follower) run(ctx context.Context, c *client.Client) error {
	pause := retry.New(100*time.Millisecond, 5*time.Second)
	for ctx.Err() == nil {
		err := f.watchOnce(ctx, c, pause)
		switch {
		case err == nil: // the server has ended the watch
		case client.Expired(err):
			f.page.printMessage("The server does not know what changed after revision %s any more; listing the objects again.\n", f.revision)
			f.revision = ""
		case passing(err):
			if !f.away {
				f.page.printMessage("The watch goes on from revision %s as soon as it can: %v\n", f.revision, err)
			}
			f.away = true
		case apierrors.IsUnauthorized(err) && !f.again && f.page.env.Credentials.Source() != nil:
			f.again = true // the token may have expired on its way
		default:
			return err
		}
		_ = pause.Wait(ctx)
	}
	return ctx.Err()
}

// passing says whether an error may go away without action.
func passing(err error) bool {
	var unreachable *call.UnreachableError
	return errors.As(err, &unreachable) || errors.Is(err, login.ErrAway) || call.NotYet(err) || apierrors.IsServiceUnavailable(err) ||
		apierrors.IsTooManyRequests(err) || apierrors.IsTimeout(err) || apierrors.IsInternalError(err)
}

// watchOnce lists the objects if the revision is not known, then watches once.
func (f *follower) watchOnce(ctx context.Context, c *client.Client, pause *retry.Backoff) error {
	if f.revision == "" {
		if err := f.page.env.Call(ctx, f.list); err != nil {
			return err
		}
	}
	return c.Warning(f.warn).Watch(ctx, client.Resource(f.kind), f.namespace, f.which, f.revision, func(e client.Event) error {
		f.away, f.again = false, false
		pause.Reset()
		f.revision = e.Object.GetResourceVersion()
		return f.printEvents(e)
	})
}

// list prints how the objects differ from those last printed.
func (f *follower) list(ctx context.Context, c *client.Client) error {
	list, err := c.Warning(f.warn).List(ctx, client.Resource(f.kind), f.namespace, f.which)
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
	return f.printEvents(events...)
}

func (f *follower) warn(warnings []string) { f.page.warn(f, warnings) }

func nameOf(object *unstructured.Unstructured) string {
	return object.GetNamespace() + "/" + object.GetName()
}

// printEvents prints events, except those without news.
func (f *follower) printEvents(events ...client.Event) error {
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
	if len(events) == 0 || f.silent {
		return nil
	}
	return f.page.print(f.kind, events)
}

func (p *page) print(kind *schema.Schema, events []client.Event) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.options.form != nil && p.options.form.template == nil:
		return p.printColumns(events)
	case p.options.output == "table" || p.options.output == "wide":
		return p.printRows(kind, events)
	}
	for _, e := range events {
		if err := p.printObject(kind, e); err != nil {
			return err
		}
		p.last = kind
	}
	return nil
}

// printObject prints the object of one event in the form of -o.
func (p *page) printObject(kind *schema.Schema, e client.Event) error {
	var value any = e.Object.Object
	if p.options.watch.events {
		value = map[string]any{"type": string(e.Type), "object": e.Object.Object}
	}
	switch {
	case p.options.form != nil:
		return p.options.form.template(p.env.Stdout, e.Object.Object)
	case p.options.output == "json":
		return writeJSON(p.env, value)
	case p.options.output == "yaml":
		text, err := yamlv2.Marshal(value)
		if err == nil {
			_, err = fmt.Fprintf(p.env.Stdout, "%s%s", p.separator(), text)
		}
		return err
	}
	key := config.Key{Kind: kind.GroupVersionKind, Namespace: e.Object.GetNamespace(), Name: e.Object.GetName()}
	_, err := fmt.Fprintln(p.env.Stdout, key)
	return err
}

// everyKind stands for the kind of a table whose columns do not depend on it.
var everyKind = &schema.Schema{}

// printColumns prints rows with the columns that the user named, with a header the first time.
func (p *page) printColumns(events []client.Event) error {
	objects := cli.MapSlice(events, func(e client.Event) *unstructured.Unstructured { return e.Object })
	rows := p.options.form.rows(objects, !p.options.noHeaders && p.last == nil)
	p.last = everyKind
	p.widths[everyKind] = alignRows(p.env.Stdout, rows, p.widths[everyKind])
	return nil
}

// separator returns what comes before a YAML document: nothing before the first.
func (p *page) separator() string {
	if p.last != nil {
		return "---\n"
	}
	return ""
}

// printRows prints a header the first time, and whenever the kind changes.
func (p *page) printRows(kind *schema.Schema, events []client.Event) error {
	o := *p.options
	o.noHeaders = o.noHeaders || p.last == kind
	objects := cli.MapSlice(events, func(e client.Event) *unstructured.Unstructured { return e.Object })
	rows, err := o.rows(p.env, objectsOfKind{kind, objects}, p.several)
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
	if !o.noHeaders && p.last != nil {
		fmt.Fprintln(p.env.Stdout)
	}
	p.last = kind
	p.widths[kind] = alignRows(p.env.Stdout, rows, p.widths[kind])
	return nil
}

// alignRows prints further rows of a table. Columns are at least as wide as widths, those of
// the rows printed before. It returns the new widths.
func alignRows(out io.Writer, rows [][]string, widths []int) []int {
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cli.CellText(cell)))
		}
	}
	var text strings.Builder
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			fmt.Fprintf(&line, "%-*s", widths[i]+cli.ColumnGap, cli.CellText(cell))
		}
		fmt.Fprintln(&text, strings.TrimRight(line.String(), " "))
	}
	fmt.Fprint(out, cli.PaintTable(out, rows, text.String()))
	return widths
}

package objects

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/aymanbagabas/go-udiff"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

const pruneHelp = `

--prune -l key=value deletes, in the same change, the stored objects that have these
labels and are in no file. It looks at all kinds but secrets, users and tokens, or those of
--prune-kinds, in the namespaces of the files and of -n. Every object of the files must have the labels,
else the next run could not find it, except those beside the mesh, which it never deletes. An object that somebody changes meanwhile is not
deleted: nothing is done then (exit code 75). On a terminal it first names what it
would delete, and asks; --yes does without.`

// pruneFlags say which stored objects to delete because no file has them.
type pruneFlags struct {
	enabled  bool
	selector string
	names    []string // names of kinds
	yes      bool     // do not ask

	labels    labels.Set
	kinds     []*schema.Schema
	confirmed map[config.Key]bool // what the user agreed to delete; nil if the user was not asked
}

// confirm lists what would be deleted, and asks on a terminal.
func (p *pruneFlags) confirm(ctx context.Context, env *environment, m *manifest, namespace string) error {
	if !p.enabled || p.yes || !env.Terminal {
		return nil
	}
	var more []storedOnly
	err := env.Call(ctx, func(ctx context.Context, c *client.Client) (err error) {
		more, err = p.superfluous(ctx, c, m, namespace)
		return err
	})
	if err != nil || len(more) == 0 {
		return err
	}
	p.confirmed = map[config.Key]bool{}
	fmt.Fprintln(env.Stderr, "In no file, and to be deleted:")
	for _, s := range more {
		p.confirmed[s.key] = true
		fmt.Fprintln(env.Stderr, "  "+s.key.String())
	}
	return env.Confirm(ctx, "Apply, and delete "+itOrThese(len(more))+"?", "nothing was applied")
}

// itOrThese returns how a question refers to n objects: "it", or "these 3".
func itOrThese(n int) string {
	if n == 1 {
		return "it"
	}
	return fmt.Sprintf("these %d", n)
}

// answered refuses to delete an object that the user was not asked about.
func (p *pruneFlags) answered(more []storedOnly) error {
	for _, s := range more {
		if p.confirmed != nil && !p.confirmed[s.key] {
			return fmt.Errorf("nothing was applied: %s is to be deleted too, which came while you were asked: apply again", s.key)
		}
	}
	return nil
}

func (p *pruneFlags) register(c *cobra.Command) {
	f := c.Flags()
	f.BoolVar(&p.enabled, "prune", false, "delete what has the labels of -l and is in no file")
	f.StringVarP(&p.selector, "selector", "l", "", "labels of the objects that --prune is about: key=value[,key=value...]")
	f.StringSliceVar(&p.names, "prune-kinds", nil, "kinds that --prune deletes objects of (default all)")
}

// check checks and parses the flags.
func (p *pruneFlags) check(schemas schema.Set, dry string) error {
	switch {
	case !p.enabled && (p.selector != "" || len(p.names) > 0):
		return exit.With(exit.Usage, errors.New("-l and --prune-kinds say what --prune deletes: add it, or leave them out"))
	case !p.enabled:
		return nil
	case p.selector == "":
		return exit.With(exit.Usage, errors.New("--prune needs -l key=value: it deletes the stored objects with these labels that are in no file"))
	case dry == dryRunClient:
		return exit.With(exit.Usage, errors.New("--prune has to ask the server what there is: use --dry-run=server"))
	}
	var err error
	if p.labels, err = labels.ConvertSelectorToLabelsMap(p.selector); err != nil {
		return exit.With(exit.Usage, fmt.Errorf("-l %s: %w: use key=value[,key=value...]", p.selector, err))
	}
	p.kinds = inHistory(schemas)
	if len(p.names) > 0 {
		p.kinds = nil
	}
	for _, name := range p.names {
		kind, err := cli.KindNamed(schemas, name)
		if err != nil {
			return exit.With(exit.Usage, fmt.Errorf("--prune-kinds: %w", err))
		}
		if !slices.Contains(p.kinds, kind) {
			p.kinds = append(p.kinds, kind)
		}
	}
	return nil
}

// demand reports objects without the labels of --prune, which the next run would not find, and
// folders that are not read: it would delete the objects that they describe.
func (p *pruneFlags) demand(m *manifest) {
	if !p.enabled {
		return
	}
	for _, o := range m.passed {
		m.fault(fmt.Errorf("-f %s: passes over %s, and --prune would delete what is described there: add -R, or name the files with -f", o.name, o))
	}
	for _, d := range m.documents {
		if !cli.BesideMesh(d.Config.GroupVersionKind) && !p.labels.AsSelector().Matches(labels.Set(d.Config.Labels)) {
			m.fault(d.Fault("metadata.labels", fmt.Sprintf("lack %s: with --prune every object of the files must have the labels of -l", p.labels)))
		}
	}
}

// superfluous returns the stored objects to delete, by kind, namespace and name.
func (p *pruneFlags) superfluous(ctx context.Context, c *client.Client, m *manifest, namespace string) ([]storedOnly, error) {
	if !p.enabled {
		return nil, nil
	}
	c = c.Fresh(client.Freshness{Consistent: true})
	wanted := map[config.Key]bool{}
	for _, d := range m.documents {
		wanted[d.Config.Key()] = true
	}
	var out []storedOnly
	for _, at := range p.searchedPlaces(m, namespace) {
		list, err := c.List(ctx, client.Resource(at.kind), at.namespace, client.Selection{Labels: p.labels.String(), Stored: true})
		if err != nil {
			return nil, err
		}
		slices.SortFunc(list.Items, func(a, b unstructured.Unstructured) int { return cmp.Compare(a.GetName(), b.GetName()) })
		for i := range list.Items {
			s := storedOnly{object: &list.Items[i], key: config.Key{
				Kind: at.kind.GroupVersionKind, Namespace: at.namespace, Name: list.Items[i].GetName(),
			}}
			if !wanted[s.key] && ofStore(&list.Items[i]) {
				out = append(out, s)
			}
		}
	}
	return out, nil
}

// Objects of other sources are read-only.
func ofStore(object *unstructured.Unstructured) bool { return otherSource(object) == "" }

// searchedPlaces returns the places that may hold superfluous objects.
func (p *pruneFlags) searchedPlaces(m *manifest, namespace string) []place {
	var namespaces []string
	if namespace != "" {
		namespaces = append(namespaces, namespace)
	}
	for _, d := range m.documents {
		if d.Config.Namespace != "" {
			namespaces = append(namespaces, d.Config.Namespace)
		}
	}
	slices.Sort(namespaces)
	namespaces = slices.Compact(namespaces)
	var out []place
	for _, kind := range p.kinds {
		if kind.ClusterScoped {
			out = append(out, place{kind, ""})
			continue
		}
		for _, n := range namespaces {
			out = append(out, place{kind, n})
		}
	}
	return out
}

// storedOnly is a stored object that is in no file.
type storedOnly struct {
	key    config.Key
	object *unstructured.Unstructured
}

// document returns the object to delete, in the version that was listed. It stands in
// no file.
func (s storedOnly) document() config.Document {
	return config.Document{Config: &config.Config{Meta: config.Meta{
		GroupVersionKind: s.key.Kind, Namespace: s.key.Namespace, Name: s.key.Name,
		ResourceVersion: s.object.GetResourceVersion(),
	}}}
}

// difference returns the diff of a deletion.
func (s storedOnly) difference() (string, error) {
	before, err := comparableText(s.object, false)
	if err != nil {
		return "", err
	}
	return udiff.Unified(s.key.String()+"\trev "+s.object.GetResourceVersion(), cli.Nowhere, before, ""), nil
}

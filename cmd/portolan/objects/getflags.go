package objects

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/help"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// getForms lists the values of -o, for people.
func getForms() string {
	forms := slices.Clone(getOutputs)
	for _, f := range writtenForms {
		forms = append(forms, f.name+"="+f.text)
	}
	return help.Alternatives(forms)
}

// checkOutput checks and parses -o, and the flags that go with some of its values alone.
func (o *getOptions) checkOutput() (err error) {
	if !slices.Contains(getOutputs, o.output) {
		if o.form, err = parseForm(o.output); err != nil {
			return err
		}
		if o.form == nil {
			return exit.With(exit.Usage, fmt.Errorf("-o %q: use %s", o.output, getForms()))
		}
	}
	if o.labels.asked() && o.output != "table" && o.output != "wide" {
		return exit.With(exit.Usage, fmt.Errorf("--show-labels and -L add columns to a table: leave them out, or -o %s", o.output))
	}
	return o.labels.check()
}

// checkSelectors checks the flags that select among objects, and --sort-by.
func (o *getOptions) checkSelectors() error {
	if _, err := labels.Parse(o.selector); err != nil {
		return exit.With(exit.Usage, fmt.Errorf("-l %q: %w", o.selector, err))
	}
	if _, err := fields.ParseSelector(o.fields); err != nil {
		return exit.With(exit.Usage, fmt.Errorf("--field-selector %q: %w", o.fields, err))
	}
	if o.sorting == "" {
		return nil
	}
	if o.watch.asked() {
		return exit.With(exit.Usage, errors.New("--sort-by sorts what there is, and -w shows what changes: leave one of them out"))
	}
	if _, err := parseFieldPath(o.sorting); err != nil {
		return exit.With(exit.Usage, fmt.Errorf("--sort-by: %w", err))
	}
	return nil
}

func (o *getOptions) selection(env *environment, args []string) (selection, error) {
	if err := o.checkOutput(); err != nil {
		return selection{}, err
	}
	if err := o.checkSelectors(); err != nil {
		return selection{}, err
	}
	if err := cmp.Or(cli.OneScope(o.allNamespaces, o.namespace != ""), o.checkFreshness()); err != nil {
		return selection{}, err
	}
	selected, err := selectObjects(env, args, o.namespace)
	if err != nil {
		return selection{}, err
	}
	if o.allNamespaces && len(selected.keys) > 0 {
		return selection{}, exit.With(exit.Usage, errors.New("an object is in one namespace: name it with -n instead of -A"))
	}
	for _, flag := range []struct{ name, value string }{{"-l", o.selector}, {"--field-selector", o.fields}} {
		if flag.value != "" && len(selected.keys) > 0 {
			return selection{}, exit.With(exit.Usage, fmt.Errorf("%s selects among all objects of a kind: leave it out, or the names", flag.name))
		}
	}
	if selected.every && !o.allNamespaces {
		selected.kinds = slices.DeleteFunc(selected.kinds, func(k *schema.Schema) bool { return k.ClusterScoped })
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

package objects

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/go-multierror"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
)

// metaWrite changes the labels or the annotations of objects.
type metaWrite struct {
	rewrite
	word      string // "label" or "annotation"
	overwrite bool
	list      bool
	get       func(*unstructured.Unstructured) map[string]string
	set       func(*unstructured.Unstructured, map[string]string)
}

func newLabelCommand(env *environment) *cobra.Command {
	o := metaWrite{rewrite: rewrite{done: "labeled"}, word: "label", get: (*unstructured.Unstructured).GetLabels, set: (*unstructured.Unstructured).SetLabels}
	c := o.command(env, "label", `
  portolan label se/reviews -n shop tier=back team=books
  portolan label se/reviews -n shop tier=front team- --overwrite
  portolan label se --all -n shop env=prod -m "all of the shop"
  portolan label vs,dr -l app=reviews -A owner=books --dry-run=server
  portolan label -f shop.yaml env=prod
  portolan label namespace shop team=books
  portolan label se/reviews -n shop --list`)
	c.Short = "Set or remove labels of objects, all of them as one change"
	return c
}

func newAnnotateCommand(env *environment) *cobra.Command {
	o := metaWrite{rewrite: rewrite{done: "annotated"}, word: "annotation", get: (*unstructured.Unstructured).GetAnnotations, set: (*unstructured.Unstructured).SetAnnotations}
	c := o.command(env, "annotate", `
  portolan annotate vs/reviews -n shop example.com/ticket=4711
  portolan annotate vs/reviews -n shop example.com/ticket-
  portolan annotate vs --all -n shop example.com/owner='the shop' --overwrite
  portolan annotate -f shop.yaml example.com/ticket=4711
  portolan annotate vs/reviews -n shop --list`)
	c.Short = "Set or remove annotations of objects, all of them as one change"
	return c
}

func (o *metaWrite) command(env *environment, verb, example string) *cobra.Command {
	c := &cobra.Command{
		Use: verb + " (KIND/NAME... | KIND NAME... | KIND --all | KIND -l LABELS | -f FILE) (KEY=VALUE | KEY-)... | --list",
		Long: fmt.Sprintf(`Set %[1]ss of objects (KEY=VALUE) or remove them (KEY-). %[2]s that an object has with
another value is refused, unless --overwrite is given; one that it does not have needs not be removed.
--list shows the %[1]ss and changes nothing.`, o.word, articled(o.word)) + rewriteHelp + waitHelp,
		Example:           strings.TrimPrefix(example, "\n"),
		ValidArgsFunction: completeBeside(env),
		RunE: func(c *cobra.Command, args []string) error {
			first := slices.IndexFunc(args, isPair)
			if first < 0 {
				first = len(args)
			}
			env := env.withSide()
			selected, err := o.choose(c.Context(), env, args[:first], verb)
			if err != nil {
				return err
			}
			if o.list {
				return o.show(c, env, selected, args[first:])
			}
			set, err := o.pairs(args[first:])
			if err = cmp.Or(err, o.check(c)); err != nil {
				return err
			}
			return o.run(c.Context(), env, selected, func(object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
				return o.change(object, set)
			})
		},
	}
	o.register(c)
	c.Flags().BoolVar(&o.overwrite, "overwrite", false, "replace values that are there")
	c.Flags().BoolVar(&o.list, "list", false, "show the "+o.word+"s, and change nothing")
	return c
}

func articled(word string) string {
	if strings.HasPrefix(word, "a") {
		return "An " + word
	}
	return "A " + word
}

// isPair says whether an argument is KEY=VALUE or KEY-, which no name of an object can be.
func isPair(arg string) bool { return strings.Contains(arg, "=") || strings.HasSuffix(arg, "-") }

// pairs parses KEY=VALUE and KEY-, for which the value is nil. It names all faults.
func (o *metaWrite) pairs(args []string) (map[string]*string, error) {
	if len(args) == 0 {
		return nil, exit.With(exit.Usage, fmt.Errorf("say what to set: KEY=VALUE, or KEY- to remove the %s", o.word))
	}
	out := map[string]*string{}
	var faults *multierror.Error
	for _, arg := range args {
		key, value, sets := strings.Cut(arg, "=")
		if !sets {
			key = strings.TrimSuffix(arg, "-")
		}
		_, twice := out[key]
		var wrong []string
		switch {
		case !isPair(arg):
			wrong = []string{"is neither KEY=VALUE nor KEY-: name the objects first"}
		case twice:
			wrong = []string{fmt.Sprintf("%s is there twice", key)}
		default:
			if wrong = content.IsLabelKey(key); sets && o.word == "label" {
				wrong = append(wrong, content.IsLabelValue(value)...)
			}
		}
		for _, w := range wrong {
			faults = multierror.Append(faults, fmt.Errorf("%q: %s", arg, w))
		}
		out[key] = nil
		if sets {
			out[key] = &value
		}
	}
	if err := cli.NothingDone(o.done, faults); err != nil {
		return nil, exit.With(exit.Usage, err)
	}
	return out, nil
}

// change sets and removes labels or annotations of an object.
func (o *metaWrite) change(object *unstructured.Unstructured, set map[string]*string) (*unstructured.Unstructured, error) {
	all := maps.Clone(o.get(object))
	if all == nil {
		all = map[string]string{}
	}
	for _, key := range slices.Sorted(maps.Keys(set)) {
		is, has := all[key]
		switch value := set[key]; {
		case value == nil:
			delete(all, key)
		case has && is != *value && !o.overwrite:
			return nil, fmt.Errorf("%s %s is %q already: --overwrite replaces it", o.word, key, is)
		default:
			all[key] = *value
		}
	}
	if len(all) == 0 {
		all = nil // the field goes too
	}
	o.set(object, all)
	return object, nil
}

// show prints the labels or annotations of objects.
func (o *metaWrite) show(c *cobra.Command, env *environment, selected selection, pairs []string) error {
	if len(pairs) > 0 {
		return exit.With(exit.Usage, fmt.Errorf("%s: --list changes nothing: leave one of them out", pairs[0]))
	}
	for _, flag := range []string{"overwrite", "dry-run", "wait", "message", "output"} {
		if c.Flags().Changed(flag) {
			return exit.With(exit.Usage, errors.New("--list changes nothing: leave --"+flag+" out"))
		}
	}
	o.among.anySource = true
	all, err := o.among.read(c.Context(), env, selected, o.files.namespace, "listed")
	if err != nil {
		return err
	}
	var rows [][]string
	for _, one := range all {
		values := o.get(one.object)
		for _, key := range slices.Sorted(maps.Keys(values)) {
			rows = append(rows, []string{one.key.String(), key + "=" + cli.Plain(values[key])})
		}
	}
	return cli.WriteTable(env.Stdout, rows)
}

package objects

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/side"
)

// The values of --type.
const (
	patchMerge     = "merge"
	patchJSON      = "json"
	patchStrategic = "strategic"
)

var patchTypes = []string{patchMerge, patchJSON, patchStrategic}

type patchOptions struct {
	rewrite
	form, text, file string
	subresource      string // status, or empty for the object
}

func newPatchCommand(env *environment) *cobra.Command {
	o := patchOptions{rewrite: rewrite{done: "patched"}}
	c := &cobra.Command{
		Use:   "patch (KIND/NAME... | KIND NAME... | KIND --all | KIND -l LABELS | -f FILE) (-p PATCH | --patch-file FILE)",
		Short: "Change fields of objects, all of them as one change",
		Long: `Change fields of objects by a patch, in YAML or JSON.

A merge patch (RFC 7386) has the fields to set; null removes one, and a list replaces the
whole list. A JSON patch (--type=json, RFC 6902) is a list of operations: add, remove,
replace, move, copy and test, each with the path of a field. A strategic merge patch
(--type=strategic) merges lists of Kubernetes' own kinds by the keys of their elements; all
other kinds take none, as in Kubernetes. A metadata.resourceVersion in a patch must be that
of the stored object.

--subresource=status patches the conditions in the statuses of objects, of types that
servers do not set. A status is kept beside its object: the history does not have it,
and each is a change of its own, up to the first that is refused.` + rewriteHelp + waitHelp,
		Example: `  portolan patch dr/reviews -n shop -p '{"spec": {"trafficPolicy": {"loadBalancer": {"simple": "ROUND_ROBIN"}}}}'
  portolan patch vs/reviews -n shop --type=json -p '[{"op": "replace", "path": "/spec/http/0/timeout", "value": "3s"}]'
  portolan patch namespace shop --type=strategic -p '{"metadata": {"labels": {"team": "books"}}}'
  portolan patch se -l app=reviews -n shop --patch-file patch.yaml --dry-run=server
  portolan patch se/reviews -n shop --subresource=status -p 'status: {conditions: [{type: Checked, status: "True"}]}'
  portolan patch vs/reviews -n shop -p 'spec: {exportTo: [.]}' -m "for the shop alone" --wait`,
		ValidArgsFunction: completeBeside(env),
		RunE: func(c *cobra.Command, args []string) error {
			env := env.withSide()
			selected, err := o.choose(c.Context(), env, args, "patch")
			if err = cmp.Or(err, o.check(c), cli.OneOf("--type", o.form, patchTypes...), o.checkKinds(selected), o.checkSubresource(c)); err != nil {
				return err
			}
			patch, err := o.read(c, env)
			if err != nil {
				return err
			}
			if o.subresource != "" {
				return o.runStatus(c.Context(), env, selected, patch)
			}
			return o.run(c.Context(), env, selected, patch)
		},
	}
	o.register(c)
	f := c.Flags()
	f.StringVar(&o.form, "type", patchMerge, "form of the patch: merge, json or strategic")
	_ = c.RegisterFlagCompletionFunc("type", cobra.FixedCompletions(patchTypes, cobra.ShellCompDirectiveNoFileComp))
	f.StringVarP(&o.text, "patch", "p", "", "the patch, in YAML or JSON")
	f.StringVar(&o.file, "patch-file", "", "file with the patch, or - for stdin")
	f.StringVar(&o.subresource, "subresource", "", "patch the status instead of the object: status")
	_ = c.RegisterFlagCompletionFunc("subresource", cobra.FixedCompletions([]string{"status"}, cobra.ShellCompDirectiveNoFileComp))
	_ = c.MarkFlagFilename("patch-file", "yaml", "yml", "json")
	return c
}

// checkKinds refuses a strategic merge patch of kinds that take none, before the patch is read.
func (o *patchOptions) checkKinds(selected selection) error {
	var none []string
	for _, kind := range selected.kinds {
		if _, err := side.Types.New(runtimeschema.GroupVersionKind(kind.GroupVersionKind)); err != nil {
			none = append(none, kind.Plural)
		}
	}
	if o.form != patchStrategic || len(none) == 0 {
		return nil
	}
	return exit.With(exit.Data, fmt.Errorf("nothing was patched: %s take no strategic merge patch: use --type=merge or --type=json", strings.Join(none, ", ")))
}

// read reads the patch, and returns what it makes of an object.
func (o *patchOptions) read(c *cobra.Command, env *environment) (func(*unstructured.Unstructured) (*unstructured.Unstructured, error), error) {
	inline, byFile := c.Flags().Changed("patch"), c.Flags().Changed("patch-file")
	if inline == byFile {
		return nil, exit.With(exit.Usage, errors.New("give the patch: -p PATCH, or --patch-file FILE, one of them"))
	}
	text, where := []byte(o.text), "-p"
	if byFile {
		var err error
		where = "--patch-file " + o.file
		if o.file == "-" {
			text, err = cli.ReadAll(env.Stdin)
		} else {
			text, err = cli.ReadFile(o.file)
		}
		if err != nil {
			return nil, exit.With(exit.Data, unreadableAt("--patch-file", o.file, err))
		}
	}
	patch, err := config.YAMLToJSON(text)
	if err != nil {
		return nil, exit.With(exit.Data, fmt.Errorf("nothing was patched: %s: %w", where, err))
	}
	apply, err := o.parse(patch)
	if err != nil {
		return nil, exit.With(exit.Data, fmt.Errorf("nothing was patched: %s: %w", where, err))
	}
	return func(object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		return patched(object, apply)
	}, nil
}

// applier applies a patch to the JSON of an object of a kind.
type applier func(of runtimeschema.GroupVersionKind, object []byte) ([]byte, error)

// parse returns what applies a patch.
func (o *patchOptions) parse(patch json.RawMessage) (applier, error) {
	if o.form != patchJSON {
		var fields map[string]any
		if err := json.Unmarshal(patch, &fields); err != nil || len(fields) == 0 {
			return nil, fmt.Errorf("a %s patch is an object with the fields to set, such as {spec: {hosts: [a.example]}}; --type=json takes a list of operations", o.form)
		}
	}
	switch o.form {
	case patchMerge:
		return func(_ runtimeschema.GroupVersionKind, object []byte) ([]byte, error) {
			return jsonpatch.MergePatch(object, patch)
		}, nil
	case patchStrategic:
		return func(of runtimeschema.GroupVersionKind, object []byte) ([]byte, error) {
			like, err := side.Types.New(of)
			if err != nil {
				return nil, err // checkKinds lets none pass
			}
			return strategicpatch.StrategicMergePatch(object, patch, like)
		}, nil
	}
	operations, err := jsonpatch.DecodePatch(patch)
	if err != nil || len(operations) == 0 {
		return nil, errors.New("a JSON patch is a list of operations, such as [{op: replace, path: /spec/hosts/0, value: a.example}]; --type=merge takes an object")
	}
	for i, operation := range operations {
		path, err := operation.Path()
		if err != nil || path == "" || operation.Kind() == "unknown" {
			return nil, fmt.Errorf("operation %d has no op and path: give both, as in {op: remove, path: /spec/exportTo}", i+1)
		}
	}
	return func(_ runtimeschema.GroupVersionKind, object []byte) ([]byte, error) { return operations.Apply(object) }, nil
}

func patched(object *unstructured.Unstructured, apply applier) (*unstructured.Unstructured, error) {
	text, err := object.MarshalJSON()
	if err != nil {
		return nil, err
	}
	if text, err = apply(object.GroupVersionKind(), text); err != nil {
		return nil, err
	}
	out := &unstructured.Unstructured{}
	if err := out.UnmarshalJSON(text); err != nil {
		return nil, fmt.Errorf("is no object any more: %w", err)
	}
	return out, nil
}

package objects

import (
	"cmp"
	"fmt"

	yamlv2 "go.yaml.in/yaml/v2"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/storage/config"
)

// tellEmpty prints the kinds without objects, or that none of all kinds has any.
func (o *getOptions) tellEmpty(env *environment, selected selection, all []objectsOfKind) {
	at, with := "", ""
	if o.freshness.Exact > 0 {
		at = fmt.Sprintf(" at revision %d", o.freshness.Exact)
	}
	if o.selector != "" {
		with = " with labels " + o.selector
	}
	if o.fields != "" {
		with += " with " + o.fields
	}
	if o.absent || selected.every && hasObjects(all) {
		return
	}
	if selected.every {
		where := ""
		if !o.allNamespaces {
			where = " in namespace " + cmp.Or(o.namespace, env.Namespace)
			at += "; -A looks in all"
		}
		fmt.Fprintf(env.Stderr, "No objects%s found%s%s.\n", with, where, at)
		return
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
	if o.form != nil {
		return o.printForm(env, all, one)
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

// printForm prints objects in the form that the user wrote.
func (o *getOptions) printForm(env *environment, all []objectsOfKind, one bool) error {
	if o.form.template == nil {
		var objects []*unstructured.Unstructured
		for _, f := range all {
			objects = append(objects, f.objects...)
		}
		if len(objects) == 0 {
			return nil
		}
		return cli.WriteTable(env.Stdout, o.form.rows(objects, !o.noHeaders))
	}
	if one {
		return o.form.template(env.Stdout, oneOrList(all, true))
	}
	return o.form.template(env.Stdout, map[string]any{"apiVersion": "v1", "kind": "List", "items": objectsIn(all)})
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

func objectsIn(all []objectsOfKind) []any {
	objects := []any{}
	for _, f := range all {
		for _, object := range f.objects {
			objects = append(objects, object.Object)
		}
	}
	return objects
}

func oneOrList(all []objectsOfKind, one bool) any {
	objects := objectsIn(all)
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

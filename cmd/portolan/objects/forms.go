package objects

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"text/template"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/jsonpath"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
)

// form is a form of -o that the user writes: a template, or the columns of a table.
type form struct {
	template func(out io.Writer, value any) error // nil for columns
	columns  []customColumn
}

// customColumn is a column of a table with the columns that the user names.
type customColumn struct {
	header string
	path   *fieldPath
}

// The values of -o that a text follows, and what that is.
var writtenForms = []struct{ name, text string }{
	{"jsonpath", "TEMPLATE"}, {"jsonpath-as-json", "TEMPLATE"}, {"jsonpath-file", "FILE"},
	{"go-template", "TEMPLATE"}, {"go-template-file", "FILE"},
	{"custom-columns", "HEADER:PATH,..."}, {"custom-columns-file", "FILE"},
}

// parseForm reads a value of -o such as jsonpath=TEMPLATE. It returns nil for a form that is not
// known.
func parseForm(output string) (*form, error) {
	name, text, given := strings.Cut(output, "=")
	i := slices.IndexFunc(writtenForms, func(f struct{ name, text string }) bool { return f.name == name })
	if i < 0 {
		return nil, nil
	}
	if !given || text == "" {
		return nil, exit.With(exit.Usage, fmt.Errorf("-o %s: say what to print: -o %s=%s", output, name, writtenForms[i].text))
	}
	kind, fromFile := strings.CutSuffix(name, "-file")
	if fromFile {
		content, err := cli.ReadFile(text)
		if err != nil {
			return nil, exit.With(exit.Data, fmt.Errorf("-o %s: %w", output, errors.Unwrap(err)))
		}
		text = string(content)
	}
	parsed, err := newForm(kind, text, fromFile)
	if err != nil {
		return nil, exit.With(exit.Usage, fmt.Errorf("-o %s: %w", output, err))
	}
	return parsed, nil
}

func newForm(kind, text string, fromFile bool) (*form, error) {
	switch {
	case kind == "custom-columns" && fromFile:
		return columnsOfLines(text)
	case kind == "custom-columns":
		return columnsOfList(text)
	case kind == "go-template":
		t, err := template.New("-o").Funcs(templateFunctions).Parse(text)
		if err != nil {
			return nil, err
		}
		return &form{template: t.Execute}, nil
	case !strings.Contains(text, "{"):
		return nil, fmt.Errorf("a template has its paths in braces, as in -o %s='{.metadata.name}'", kind)
	}
	path := jsonpath.New("-o").AllowMissingKeys(true)
	path.EnableJSONOutput(kind == "jsonpath-as-json")
	if err := path.Parse(text); err != nil {
		return nil, err
	}
	return &form{template: path.Execute}, nil
}

// columnsOfList reads columns such as NAME:.metadata.name,HOSTS:.spec.hosts[*].
func columnsOfList(text string) (*form, error) {
	out := &form{}
	for _, one := range strings.Split(text, ",") {
		header, path, ok := strings.Cut(one, ":")
		if !ok || header == "" || path == "" {
			return nil, fmt.Errorf("%q is no column: give HEADER:PATH, as in NAME:.metadata.name", one)
		}
		if err := out.add(header, path); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// columnsOfLines reads columns from two lines, one with the headers and one with the paths.
func columnsOfLines(text string) (*form, error) {
	first, second, _ := strings.Cut(strings.TrimSpace(text), "\n")
	headers, paths := strings.Fields(first), strings.Fields(second)
	if len(headers) == 0 || len(headers) != len(paths) {
		return nil, fmt.Errorf("the first line has %s, and the second %s: write a header and a path for each column",
			cli.CountOf(len(headers), "header"), cli.CountOf(len(paths), "path"))
	}
	out := &form{}
	for i, header := range headers {
		if err := out.add(header, paths[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (f *form) add(header, path string) error {
	parsed, err := parseFieldPath(path)
	if err != nil {
		return err
	}
	f.columns = append(f.columns, customColumn{header, parsed})
	return nil
}

// rows returns the table of objects.
func (f *form) rows(objects []*unstructured.Unstructured, headers bool) [][]string {
	var rows [][]string
	if headers {
		rows = append(rows, cli.MapSlice(f.columns, func(c customColumn) string { return c.header }))
	}
	for _, object := range objects {
		rows = append(rows, cli.MapSlice(f.columns, func(c customColumn) string { return c.path.textOf(object.Object) }))
	}
	return rows
}

// templateFunctions are those that kubectl adds to Go's.
var templateFunctions = template.FuncMap{
	"base64decode": func(text string) (string, error) {
		plain, err := base64.StdEncoding.DecodeString(text)
		return string(plain), err
	},
	"exists": exists,
}

// exists says whether a value has a field, in a field, and so on; an index finds an element.
func exists(value any, fields ...any) bool {
	for _, field := range fields {
		switch v := reflect.ValueOf(value); v.Kind() {
		case reflect.Map:
			name, ok := field.(string)
			if !ok {
				return false
			}
			found := v.MapIndex(reflect.ValueOf(name))
			if !found.IsValid() {
				return false
			}
			value = found.Interface()
		case reflect.Slice:
			i, ok := field.(int)
			if !ok || i < 0 || i >= v.Len() {
				return false
			}
			value = v.Index(i).Interface()
		default:
			return false
		}
	}
	return true
}

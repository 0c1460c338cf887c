package openapi

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/spelling"
)

// Explainer finds the fields of kinds. It is immutable.
type Explainer struct{ definitions map[string]*spec.Schema }

// NewExplainer returns an Explainer of the kinds.
func NewExplainer(schemas schema.Set) *Explainer { return &Explainer{Definitions(schemas)} }

// Field is a field of a kind, or the kind itself.
type Field struct {
	Name string
	// Type is as kubectl explain writes it: string, []HTTPRoute, map[string]string.
	Type string
	// Format tells more of a string or a number, such as date-time; empty for none.
	Format string
	// Description says what the field means. OfType says what its values or elements are; it is
	// empty if that is the same text.
	Description, OfType string
	// Required fields must be set wherever the field that they belong to is.
	Required bool
	// Enum are the values of a field that takes no others.
	Enum []string

	schema spec.Schema
}

// Find returns the field at a path below a kind, the kind itself for an empty path. Lists
// and maps are passed through. The error says which field is unknown, and which ones there
// are.
func (e *Explainer) Find(k *schema.Schema, path ...string) (Field, error) {
	kind := *spec.RefSchema(definitionPrefix + kindName(k, k.Versions[0]))
	at := e.field(k.Kind, kind, false)
	for i, name := range path {
		fields := e.Fields(at)
		names := make([]string, len(fields))
		for j, f := range fields {
			names[j] = f.Name
		}
		j := slices.Index(names, name)
		switch {
		case j >= 0:
			at = fields[j]
			continue
		case len(fields) == 0:
			return Field{}, fmt.Errorf("%s has no fields: it is of type %s", strings.Join(append([]string{k.Singular}, path[:i]...), "."), at.Type)
		}
		hint := "it has " + strings.Join(names, ", ")
		if meant := spelling.Nearest(name, names); meant != "" {
			hint = "did you mean " + meant + "?"
		}
		return Field{}, fmt.Errorf("%s has no field %q: %s", strings.Join(append([]string{k.Singular}, path[:i]...), "."), name, hint)
	}
	return at, nil
}

// Fields returns the fields of the values of a field, in the order of their names. Of a list
// or a map it returns the fields of the elements.
func (e *Explainer) Fields(of Field) []Field {
	s := e.element(of.schema)
	var out []Field
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		out = append(out, e.field(name, s.Properties[name], slices.Contains(s.Required, name)))
	}
	return out
}

// TypeName names the type of the values of a field, or of its elements, if they have fields.
// Types that contain themselves have the same name again below.
func (e *Explainer) TypeName(of Field) string {
	s := of.schema
	for s.Ref.String() == "" {
		inner := inner(s)
		if inner == nil {
			return ""
		}
		s = *inner
	}
	return s.Ref.String()
}

// Schema returns a JSON schema of a field, with all types that it refers to. It permits no
// unknown fields, so that editors find them as the server does.
func (e *Explainer) Schema(of Field) spec.Schema {
	out := closed(e.resolved(of.schema))
	out.Definitions = spec.Definitions{}
	var add func(spec.Schema)
	add = func(s spec.Schema) {
		if name, ok := strings.CutPrefix(s.Ref.String(), definitionPrefix); ok {
			if _, has := out.Definitions[name]; !has {
				out.Definitions[name] = closed(*e.definitions[name])
				add(*e.definitions[name])
			}
		}
		if inner := inner(s); inner != nil {
			add(*inner)
		}
		for _, property := range s.Properties {
			add(property)
		}
	}
	add(out)
	return out
}

// closed returns a schema without unknown fields, if it has known ones.
func closed(s spec.Schema) spec.Schema {
	if len(s.Properties) > 0 {
		s.AdditionalProperties = &spec.SchemaOrBool{Allows: false}
	}
	return s
}

func (e *Explainer) field(name string, s spec.Schema, required bool) Field {
	whole := e.resolved(s)
	out := Field{Name: name, Type: e.typeOf(s), Format: whole.Format, Required: required, Description: whole.Description, schema: s}
	if about := e.element(s).Description; about != whole.Description {
		out.OfType = about
	}
	for _, value := range e.element(s).Enum {
		out.Enum = append(out.Enum, fmt.Sprint(value))
	}
	return out
}

// typeOf returns the type of a schema.
func (e *Explainer) typeOf(s spec.Schema) string {
	switch {
	case s.Items != nil:
		return "[]" + e.typeOf(*s.Items.Schema)
	case s.AdditionalProperties != nil:
		return "map[string]" + e.typeOf(*s.AdditionalProperties.Schema)
	case s.Ref.String() != "":
		name := s.Ref.String()
		return name[strings.LastIndex(name, ".")+1:]
	case s.Extensions[eitherExtension] == true:
		return "integer"
	case len(s.Type) == 0:
		return "any"
	}
	return s.Type[0]
}

// inner returns the schema of the elements of a list or a map, nil for others.
func inner(s spec.Schema) *spec.Schema {
	switch {
	case s.Items != nil:
		return s.Items.Schema
	case s.AdditionalProperties != nil:
		return s.AdditionalProperties.Schema
	}
	return nil
}

// element returns the schema of the elements of a list or a map, and of any other its own,
// with what it refers to.
func (e *Explainer) element(s spec.Schema) spec.Schema {
	for inner(s) != nil {
		s = *inner(s)
	}
	out := e.resolved(s)
	if s.Ref.String() != "" {
		out.Description = e.definitions[strings.TrimPrefix(s.Ref.String(), definitionPrefix)].Description
	}
	return out
}

// resolved returns a schema with what it refers to, and its own description if it has one.
func (e *Explainer) resolved(s spec.Schema) spec.Schema {
	name, ok := strings.CutPrefix(s.Ref.String(), definitionPrefix)
	if !ok {
		return s
	}
	out := *e.definitions[name]
	if s.Description != "" {
		out.Description = s.Description
	}
	return out
}

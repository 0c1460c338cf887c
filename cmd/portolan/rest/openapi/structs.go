package openapi

import (
	"cmp"
	"encoding"
	"encoding/json"
	"maps"
	"path"
	"reflect"
	"strings"
	"time"

	"k8s.io/kube-openapi/pkg/util"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// goType returns the schema of the values of a Go type in JSON; for a struct it is a
// reference.
func (d *definer) goType(t reflect.Type) spec.Schema {
	if t.Kind() == reflect.Pointer {
		return d.goType(t.Elem())
	}
	if s, ok := ownForm(t); ok {
		return s
	}
	switch t.Kind() {
	case reflect.Struct:
		return d.structure(t)
	case reflect.Map:
		return *spec.MapProperty(new(d.goType(t.Elem())))
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			return *spec.StrFmtProperty("byte")
		}
		return *spec.ArrayProperty(new(d.goType(t.Elem())))
	case reflect.String:
		return *spec.StringProperty()
	case reflect.Bool:
		return *spec.BooleanProperty()
	case reflect.Float32, reflect.Float64:
		return *spec.Float64Property()
	case reflect.Int32, reflect.Int16, reflect.Int8:
		return *spec.Int32Property()
	case reflect.Interface:
		return anyValue()
	default: // the other integers
		return *spec.Int64Property()
	}
}

// ownForm returns the schema of a type that has a form of its own in JSON.
func ownForm(t reflect.Type) (spec.Schema, bool) {
	value := reflect.New(t).Interface()
	if typed, ok := value.(interface {
		OpenAPISchemaType() []string
		OpenAPISchemaFormat() string
	}); ok {
		return spec.Schema{SchemaProps: spec.SchemaProps{Type: typed.OpenAPISchemaType(), Format: typed.OpenAPISchemaFormat()}}, true
	}
	_, isJSON := value.(json.Unmarshaler)
	_, isText := value.(encoding.TextUnmarshaler)
	switch {
	case t == reflect.TypeFor[time.Time]():
		return *spec.DateTimeProperty(), true
	case isJSON && t.Kind() == reflect.Struct:
		return anyObject(), true
	case isJSON:
		return anyValue(), true
	case isText:
		return *spec.StringProperty(), true
	}
	return spec.Schema{}, false
}

// structure defines a struct, and returns a reference to it.
func (d *definer) structure(t reflect.Type) spec.Schema {
	name := util.ToRESTFriendlyName(t.PkgPath() + "." + t.Name())
	if _, ok := d.definitions[name]; !ok {
		out := &spec.Schema{}
		d.definitions[name] = out // before its fields, since a type may contain itself
		table := path.Base(t.PkgPath()) + "." + t.Name()
		fields := d.structFields(t, table)
		d.name(name, table, fields)
		*out = spec.Schema{SchemaProps: spec.SchemaProps{
			Type: []string{"object"}, Description: cmp.Or(described().text(table, ""), docOf(t)[""]), Properties: fields, Required: requiredFields[table],
		}}
	}
	return *spec.RefSchema(definitionPrefix + name)
}

// structFields returns the fields of a struct, with those of structs embedded in it.
func (d *definer) structFields(t reflect.Type, table string) map[string]spec.Schema {
	fields, doc := map[string]spec.Schema{}, docOf(t)
	for i := range t.NumField() {
		field := t.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case name == "-", !field.IsExported() && !field.Anonymous:
		case field.Anonymous && name == "":
			inner := field.Type
			if inner.Kind() == reflect.Pointer {
				inner = inner.Elem()
			}
			maps.Copy(fields, d.structFields(inner, table))
		default:
			name = cmp.Or(name, field.Name)
			s := d.goType(field.Type)
			s.Extensions = merging(field.Tag, s.Extensions)
			fields[name] = describedAs(&s, cmp.Or(described().text(table, name), doc[name]))
		}
	}
	return fields
}

// merging adds the extensions for the merge of a list, which the types of Kubernetes have in
// tags.
func merging(tag reflect.StructTag, before spec.Extensions) spec.Extensions {
	key := tag.Get("patchMergeKey")
	switch {
	case tag.Get("patchStrategy") != "merge":
		return before
	case key == "":
		return spec.Extensions{listExtension: "set", "x-kubernetes-patch-strategy": "merge"}
	}
	return spec.Extensions{
		listExtension: "map", keysExtension: []any{key},
		"x-kubernetes-patch-strategy": "merge", "x-kubernetes-patch-merge-key": key,
	}
}

// docOf returns the descriptions that a type of Kubernetes brings along.
func docOf(t reflect.Type) map[string]string {
	if documented, ok := reflect.New(t).Interface().(interface{ SwaggerDoc() map[string]string }); ok {
		return documented.SwaggerDoc()
	}
	return nil
}

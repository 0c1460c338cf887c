package main

import (
	"encoding"
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/portolan-mesh/portolan/cmd/portolan/clitest"
)

var (
	ofObject     = reflect.TypeFor[unstructured.Unstructured]()
	isJSON       = reflect.TypeFor[json.Marshaler]()
	isText       = reflect.TypeFor[encoding.TextMarshaler]()
	ofRawMessage = reflect.TypeFor[json.RawMessage]()
)

// keysOf returns the paths of the keys that a value of this type can have in JSON, in order. An
// element of a list is [], a key of a map *, and ** is whatever else there is below.
func keysOf(value any) []string {
	out := keysOfType(reflect.TypeOf(value), "", nil)
	slices.Sort(out)
	return slices.Compact(out)
}

// leaves returns the paths that have none below.
func leaves(keys []string) []string {
	return slices.DeleteFunc(slices.Clone(keys), func(key string) bool {
		return slices.ContainsFunc(keys, func(other string) bool {
			return strings.HasPrefix(other, key+".") || strings.HasPrefix(other, key+"[]")
		})
	})
}

func keysOfType(of reflect.Type, at string, within []reflect.Type) []string {
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	here, below := []string{at}, strings.TrimPrefix(at+".", ".")
	if at == "" {
		here = nil
	}
	switch {
	case of == ofObject:
		return append(here, below+"apiVersion", below+"kind", below+"metadata", below+"metadata.**", below+"**")
	case slices.Contains(within, of), of == ofRawMessage, of.Kind() == reflect.Interface:
		return append(here, below+"**")
	case of.Implements(isText), reflect.PointerTo(of).Implements(isText):
		return here
	case of.Implements(isJSON), reflect.PointerTo(of).Implements(isJSON):
		if of.Kind() == reflect.Struct && !strings.HasSuffix(of.Name(), "Time") {
			return append(here, below+"**")
		}
		return here
	}
	switch of.Kind() {
	case reflect.Slice, reflect.Array:
		if of.Elem().Kind() == reflect.Uint8 {
			return here
		}
		return append(here, keysOfType(of.Elem(), at+"[]", within)...)
	case reflect.Map:
		return append(here, keysOfType(of.Elem(), below+"*", within)...)
	case reflect.Struct:
		return append(here, keysOfStruct(of, at, append(slices.Clip(within), of))...)
	}
	return here
}

func keysOfStruct(of reflect.Type, at string, within []reflect.Type) (out []string) {
	for i := range of.NumField() {
		field := of.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case field.Tag.Get("json") == "-", !field.IsExported() && !field.Anonymous:
		case field.Anonymous && name == "":
			inner := field.Type
			if inner.Kind() == reflect.Pointer {
				inner = inner.Elem()
			}
			out = append(out, keysOfStruct(inner, at, within)...)
		default:
			if name == "" {
				name = field.Name
			}
			out = append(out, keysOfType(field.Type, strings.TrimPrefix(at+"."+name, "."), within)...)
		}
	}
	return out
}

// keysIn returns the paths of the keys of a document. They have [] for elements of lists.
func keysIn(document any) (out []string) {
	var walk func(any, string)
	walk = func(value any, at string) {
		switch v := value.(type) {
		case map[string]any:
			for key, inner := range v {
				path := strings.TrimPrefix(at+"\x00"+key, "\x00")
				out = append(out, path)
				walk(inner, path)
			}
		case []any:
			for _, inner := range v {
				walk(inner, at+"[]")
			}
		}
	}
	walk(document, "")
	slices.Sort(out)
	return slices.Compact(out)
}

// describes says whether a path of keysIn is among those of keysOf.
func describes(keys []string, path string) bool {
	parts := strings.Split(path, "\x00")
	return slices.ContainsFunc(keys, func(key string) bool {
		known := strings.Split(key, ".")
		for i, part := range known {
			switch {
			case part == "**":
				return true
			case i == len(parts):
				return false
			case strings.TrimRight(part, "[]") == "*":
				if strings.Count(part, "[]") != strings.Count(parts[i], "[]") {
					return false
				}
			case part != parts[i]:
				return false
			}
		}
		return len(known) == len(parts)
	})
}

// TestKeysOf: all forms that a key can have.
func TestKeysOf(t *testing.T) {
	t.Parallel()
	type Inner struct {
		Deep map[string][]struct {
			A int `json:"a"`
		} `json:"deep,omitempty"`
		Any any `json:"any"`
	}
	type outer struct {
		Inner  `json:",inline"`
		Hidden int    `json:"-"`
		Bytes  []byte `json:"bytes"`
		Named  *Inner `json:"named"`
	}
	keys := keysOf(&outer{})
	clitest.Same(t, "keys", strings.Join(keys, " "), "any any.** bytes deep deep.* deep.*[] deep.*[].a named named.any named.any.** named.deep named.deep.* named.deep.*[] named.deep.*[].a")
	clitest.Same(t, "leaves", strings.Join(leaves(keys), " "), "any.** bytes deep.*[].a named.any.** named.deep.*[].a")
	for path, is := range map[string]bool{"any": true, "any\x00x\x00y": true, "deep\x00k[]\x00a": true, "deep\x00k[]\x00b": false, "named\x00deep\x00k\x00a": false, "hidden": false, "Hidden": false, "bytes\x00x": false} {
		if describes(keys, path) != is {
			t.Errorf("%q is described: %v, want %v, by %v", path, !is, is, keys)
		}
	}
}

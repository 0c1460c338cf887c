package config

import (
	"encoding"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// fit reports what in raw does not fit a Go type: every unknown field, every value of a
// wrong type. encoding/json stops at the first, and accepts names in any case.
func (o *object) fit(path string, t reflect.Type, raw json.RawMessage) {
	for t.Kind() == reflect.Pointer && !readsItself(t) {
		t = t.Elem()
	}
	if o.full() {
		return
	}
	switch kind := t.Kind(); {
	case readsItself(t) || kind == reflect.Slice && t.Elem().Kind() == reflect.Uint8:
		o.fitValue(path, t, raw)
	case kind == reflect.Struct:
		o.fitStruct(path, t, raw)
	case kind == reflect.Map:
		members := o.members(path, raw)
		for _, key := range sortedKeys(members) {
			o.fitElement(path+"["+short(key)+"]", t.Elem(), members[key])
		}
	case kind == reflect.Slice, kind == reflect.Array:
		var list []json.RawMessage
		if json.Unmarshal(raw, &list) != nil {
			o.fail(path, "must be a list, is %s", o.shortened(raw))
		}
		for i, item := range list {
			o.fitElement(fmt.Sprintf("%s[%d]", path, i), t.Elem(), item)
		}
	default:
		o.fitValue(path, t, raw)
	}
}

func (o *object) fitStruct(path string, t reflect.Type, raw json.RawMessage) {
	fields := jsonFields(t)
	members := o.members(path, raw, sortedKeys(fields)...)
	for _, name := range sortedKeys(members) {
		if field, ok := fields[name]; !ok {
			known := slices.Collect(maps.Keys(fields))
			if path == "" {
				known = append(known, documentFields...)
			}
			o.reportUnknown(path, name, known)
		} else if !isNull(members[name]) {
			o.fit(fieldPath(path, name), field.Type, members[name])
		}
	}
}

// fitElement is fit for an element of a list or a map, which may not be null.
func (o *object) fitElement(path string, t reflect.Type, raw json.RawMessage) {
	if isNull(raw) && t.Kind() != reflect.Interface {
		o.fail(path, "is null: leave it out")
		return
	}
	o.fit(path, t, raw)
}

// fitValue tries to read a value that has no fields of its own.
func (o *object) fitValue(path string, t reflect.Type, raw json.RawMessage) {
	err := json.Unmarshal(raw, reflect.New(t).Interface())
	switch wanted := wantsOf(t); {
	case err == nil:
	case wanted == "a string":
		o.fail(path, "%s", o.mustBeText(raw))
	case wanted == "":
		o.fail(path, "is %s: %v", o.shortened(raw), err)
	default:
		o.fail(path, "must be %s, is %s", wanted, o.shortened(raw))
	}
}

// wantsOf describes the JSON that a Go type accepts; empty if that depends on the type's
// own code.
func wantsOf(t reflect.Type) string {
	switch kind := t.Kind(); {
	case readsItself(t):
		return ""
	case kind == reflect.String:
		return "a string"
	case kind == reflect.Bool:
		return "true or false"
	case kind == reflect.Slice:
		return "a string in base64"
	case kind == reflect.Float32, kind == reflect.Float64:
		return "a number"
	case kind >= reflect.Uint && kind <= reflect.Uintptr:
		return "a whole number from 0 (" + t.Kind().String() + ")"
	case kind >= reflect.Int && kind <= reflect.Int64:
		return "a whole number (" + t.Kind().String() + ")"
	}
	return ""
}

// readsItself says whether a type has a JSON form of its own.
func readsItself(t reflect.Type) bool {
	to := reflect.PointerTo(t)
	return to.Implements(reflect.TypeFor[json.Unmarshaler]()) || to.Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// jsonFields returns the fields of a struct by their names in JSON. It includes the
// fields of embedded structs, with their index path in the outer one.
func jsonFields(t reflect.Type) map[string]reflect.StructField {
	fields := map[string]reflect.StructField{}
	for i := range t.NumField() {
		field := t.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		inner := field.Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		switch {
		case name == "-":
		case field.Anonymous && name == "" && inner.Kind() == reflect.Struct:
			for name, promoted := range jsonFields(inner) {
				if _, taken := fields[name]; !taken {
					promoted.Index = append([]int{i}, promoted.Index...)
					fields[name] = promoted
				}
			}
		case !field.IsExported():
		default:
			if name == "" {
				name = field.Name
			}
			fields[name] = field
		}
	}
	return fields
}

package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/anypb"
)

// jsonType is the type URL of stored specs that are JSON text.
const jsonType = "application/json"

// structure is the form of Go structs with JSON tags: a spec is a pointer to one. Specs
// with the same JSON are equal. topLevel says that a spec is a TopLevel.
type structure struct{ topLevel bool }

func (s structure) path() string {
	if s.topLevel {
		return ""
	}
	return specField
}

func (structure) clone(spec any) any { return copyOf(reflect.ValueOf(spec)).Interface() }

// copyOf returns a deep copy of a value. It copies unexported fields as they are: types
// such as time.Time never modify what they point to.
func copyOf(v reflect.Value) reflect.Value {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return v
		}
		out := reflect.New(v.Type().Elem())
		out.Elem().Set(copyOf(v.Elem()))
		return out
	case reflect.Interface:
		if v.IsNil() {
			return v
		}
		return copyOf(v.Elem())
	case reflect.Struct:
		out := reflect.New(v.Type()).Elem()
		out.Set(v)
		for i := range v.NumField() {
			if out.Field(i).CanSet() {
				out.Field(i).Set(copyOf(v.Field(i)))
			}
		}
		return out
	case reflect.Slice:
		if v.IsNil() {
			return v
		}
		out := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		for i := range v.Len() {
			out.Index(i).Set(copyOf(v.Index(i)))
		}
		return out
	case reflect.Array:
		out := reflect.New(v.Type()).Elem()
		for i := range v.Len() {
			out.Index(i).Set(copyOf(v.Index(i)))
		}
		return out
	case reflect.Map:
		if v.IsNil() {
			return v
		}
		out := reflect.MakeMapWithSize(v.Type(), v.Len())
		for entries := v.MapRange(); entries.Next(); {
			out.SetMapIndex(entries.Key(), copyOf(entries.Value()))
		}
		return out
	}
	return v
}

func (s structure) equal(a, b any) bool {
	if reflect.TypeOf(a) != reflect.TypeOf(b) {
		return false
	}
	if reflect.DeepEqual(a, b) {
		return true
	}
	textA, errA := s.toJSON(a)
	textB, errB := s.toJSON(b)
	return errA == nil && errB == nil && bytes.Equal(textA, textB)
}

func (structure) toJSON(spec any) (json.RawMessage, error) {
	return encoded(spec)
}

func (structure) typeURL(any) string { return jsonType }

func (s structure) marshal(spec any, before []byte) ([]byte, error) {
	after, err := s.toJSON(spec)
	if err != nil || len(before) == 0 {
		return after, err
	}
	known := reflect.New(reflect.TypeOf(spec).Elem()).Interface()
	if json.Unmarshal(before, known) != nil {
		return after, nil // before cannot be read, so its unknown fields cannot be found
	}
	readable, err := s.toJSON(known)
	if err != nil || bytes.Equal(readable, before) {
		return after, err
	}
	return s.toJSON(keepUnknown(parseJSON(before), parseJSON(readable), parseJSON(after)))
}

func parseJSON(text []byte) (value any) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	_ = decoder.Decode(&value) // it was encoded here, or has been read
	return value
}

// keepUnknown returns after with the members that before has and known, its readable part,
// lacks: a newer binary wrote them. In lists it keeps them in the elements that did not
// change.
func keepUnknown(before, known, after any) any {
	switch merged := after.(type) {
	case map[string]any:
		from, isMap := before.(map[string]any)
		read, wasRead := known.(map[string]any)
		if !isMap || !wasRead {
			return after
		}
		for name, value := range from {
			if _, ok := read[name]; ok {
				if member, stays := merged[name]; stays {
					merged[name] = keepUnknown(value, read[name], member)
				}
			} else if _, taken := merged[name]; !taken {
				merged[name] = value
			}
		}
	case []any:
		from, isList := before.([]any)
		read, wasRead := known.([]any)
		if !isList || !wasRead || len(from) != len(read) {
			return after
		}
		for i := range min(len(from), len(merged)) {
			if reflect.DeepEqual(read[i], merged[i]) {
				merged[i] = from[i]
			}
		}
	}
	return after
}

// JSON returns the codec of a kind whose spec is a Go struct T with JSON tags; specs
// are of type *T. Give its fields omitempty or omitzero, so that unset fields are not
// written. It panics if *T is a TopLevel and has a field such as metadata or spec.
func JSON[T any]() Codec {
	form, _ := formOf(new(T)).(structure)
	if form.topLevel {
		for name := range jsonFields(reflect.TypeFor[T]()) {
			if slices.ContainsFunc(nestedFields, func(f string) bool { return strings.EqualFold(f, name) }) {
				panic(fmt.Sprintf("config: %s has a field %s at the top level, where it means something else", reflect.TypeFor[T](), name))
			}
		}
	}
	return structured[T]{form}
}

type structured[T any] struct{ structure }

func (structured[T]) Veiled() bool {
	_, veiled := any((*T)(nil)).(Veiled)
	return veiled
}

func (c structured[T]) Path() string { return c.path() }

func (structured[T]) New() any { return new(T) }

func (c structured[T]) keepsText() bool { return c.path() == specField && !c.Veiled() }

func (structured[T]) Is(spec any) bool {
	s, ok := spec.(*T)
	return ok && s != nil
}

func (c structured[T]) Check(spec any) error {
	s, ok := spec.(*T)
	switch {
	case spec == nil, ok && s == nil:
		return errNoSpec
	case !ok:
		return fmt.Errorf("the spec is a %T, where a %T belongs", spec, s)
	}
	if v, ok := spec.(Veiled); ok {
		if err := v.CheckStored(); err != nil {
			return err
		}
	}
	text, err := c.toJSON(spec) // refuses cycles, and numbers that are none
	if err != nil {
		return faultAt(c.path(), err)
	}
	if depth := nesting(text); depth > maxDepth {
		return faultAt(c.path(), fmt.Errorf("is nested %d deep, and %d is the most", depth, maxDepth))
	}
	if fault := (&unreadable{}); !fault.text(reflect.ValueOf(spec)) {
		return fault.below(c.path())
	}
	return nil
}

func (structured[T]) ReadJSON(text []byte) (any, error) {
	spec := new(T)
	err := json.Unmarshal(text, spec)
	return spec, err
}

func (c structured[T]) Unmarshal(stored *anypb.Any) (any, error) {
	if stored.GetTypeUrl() != jsonType {
		return nil, fmt.Errorf("it is a %s, and must be %s", stored.GetTypeUrl(), jsonType)
	}
	return c.ReadJSON(stored.GetValue())
}

func (c structured[T]) Known(stored *anypb.Any) bool {
	spec, err := c.Unmarshal(stored)
	if err != nil {
		return false
	}
	text, err := c.toJSON(spec)
	return err == nil && bytes.Equal(text, stored.GetValue())
}

func (c structured[T]) decode(o *object, raw json.RawMessage) any {
	spec := new(T)
	if len(raw) == 0 || isNull(raw) {
		return spec
	}
	o.veiled = c.Veiled()
	defer func() { o.veiled = false }()
	before := len(o.faults)
	o.fit(c.path(), reflect.TypeFor[T](), raw)
	if len(o.faults) > before {
		return spec
	}
	if err := json.Unmarshal(raw, spec); err != nil {
		o.fail(c.path(), "%v", err)
	}
	return spec
}

// text says whether all text in a Go value is UTF-8; JSON would replace invalid bytes.
func (u *unreadable) text(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.String:
		if !utf8.ValidString(v.String()) {
			return u.is(errors.New("is not text in UTF-8"))
		}
	case reflect.Pointer, reflect.Interface:
		return v.IsNil() || u.text(v.Elem())
	case reflect.Struct:
		fields := jsonFields(v.Type())
		for _, name := range sortedKeys(fields) {
			member, err := v.FieldByIndexErr(fields[name].Index)
			if err == nil && !u.text(member) { // err means a nil embedded pointer
				return u.within("." + name)
			}
		}
	case reflect.Map:
		for entries := v.MapRange(); entries.Next(); {
			if !u.text(entries.Key()) || !u.text(entries.Value()) {
				return u.within(fmt.Sprintf("[%s]", short(fmt.Sprint(entries.Key()))))
			}
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			if !u.text(v.Index(i)) {
				return u.within(fmt.Sprintf("[%d]", i))
			}
		}
	}
	return true
}

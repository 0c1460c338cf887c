package config

import (
	"bytes"
	"encoding/json"
	"reflect"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// Written is the JSON of a spec as the user wrote it, where its canonical form says less: it has
// no fields that have their default values, such as weight: 0, and only one form of a duration.
// Clients of Kubernetes compare what they wrote with what they read. The zero Written stands for
// the canonical form.
type Written struct {
	// JSON is compact, with sorted keys.
	JSON string

	of any // the spec that it is of: a Config with another one has no Written
}

// Equal says whether two are the same text.
func (w Written) Equal(o Written) bool { return w.JSON == o.JSON }

// AsWritten returns the JSON of the spec as the user wrote it, empty for its canonical form.
func (c *Config) AsWritten() string {
	if c.Written.JSON == "" || c.Written.of != c.Spec {
		return ""
	}
	return c.Written.JSON
}

// SetWritten says that the user wrote the present spec so; an empty text stands for its canonical
// form.
func (c *Config) SetWritten(text string) {
	c.Written = Written{}
	if text != "" {
		c.Written = Written{JSON: text, of: c.Spec}
	}
}

// keepText keeps how the user wrote the spec of the object, if it has no fault.
func (o *object) keepText(codec Codec, raw json.RawMessage) {
	if len(o.faults) == 0 {
		o.config.SetWritten(written(codec, o.config.Spec, raw))
	}
}

// written returns what AsWritten returns for a spec that was read from raw without a fault.
func written(codec Codec, spec any, raw json.RawMessage) string {
	if !codec.keepsText() || len(raw) == 0 || isNull(raw) {
		return ""
	}
	canonical, err := specJSON(spec)
	if err != nil || sameBytes(canonical, raw) {
		return ""
	}
	var want, said any
	if readNumbers(canonical, &want) != nil || readNumbers(raw, &said) != nil {
		return ""
	}
	var md protoreflect.MessageDescriptor
	if m, ok := spec.(protoreflect.ProtoMessage); ok {
		md = m.ProtoReflect().Descriptor()
	}
	kept := wordingOf(md, said, want)
	if reflect.DeepEqual(kept, want) {
		return ""
	}
	text, err := structure{}.toJSON(kept)
	if err != nil {
		return ""
	}
	return string(text)
}

// sameBytes says whether two JSON texts have the same bytes, blanks aside, in whatever order: then
// texts of equal values differ only in the order of their fields.
func sameBytes(a, b []byte) bool {
	var counts [256]int
	for _, c := range a {
		counts[c]++
	}
	for _, c := range b {
		counts[c]--
	}
	for c, n := range counts {
		if n != 0 && !bytes.ContainsRune([]byte(" \t\r\n"), rune(c)) {
			return false
		}
	}
	return true
}

func readNumbers(text []byte, into *any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	return decoder.Decode(into)
}

// wordingOf merges what a user said into the canonical form of the same value: the names of fields
// and the types of values are the canonical ones, so that a schema describes the result. md is nil
// for a value that is no message.
func wordingOf(md protoreflect.MessageDescriptor, said, canonical any) any {
	switch want := canonical.(type) {
	case map[string]any:
		if said, ok := said.(map[string]any); ok {
			return wordingOfMembers(md, said, want)
		}
	case []any:
		said, ok := said.([]any)
		if !ok || len(said) != len(want) {
			return canonical
		}
		out := make([]any, len(want))
		for i := range want {
			out[i] = wordingOf(md, said[i], want[i])
		}
		return out
	default:
		if reflect.TypeOf(said) == reflect.TypeOf(canonical) {
			return said
		}
	}
	return canonical
}

func wordingOfMembers(md protoreflect.MessageDescriptor, said, canonical map[string]any) map[string]any {
	out := make(map[string]any, len(said))
	for name, value := range canonical {
		out[name] = value
	}
	for name, value := range said {
		var fd protoreflect.FieldDescriptor
		if md != nil && !isWellKnown(md) {
			if fd = fieldByName(md, name); fd == nil {
				continue
			}
			name = fd.JSONName()
		}
		switch want, has := canonical[name]; {
		case has && fd != nil && fd.IsMap():
			out[name] = wordingOfEntries(fd.MapValue().Message(), value, want)
		case has:
			out[name] = wordingOf(messageOfField(fd), value, want)
		case value == nil: // as good as absent
		case fd == nil || isDefault(fd, value):
			out[name] = value
		}
	}
	return out
}

// wordingOfEntries is wordingOf for a map, whose keys are no fields.
func wordingOfEntries(md protoreflect.MessageDescriptor, said, canonical any) any {
	of, ok := said.(map[string]any)
	want, both := canonical.(map[string]any)
	if !ok || !both {
		return canonical
	}
	out := make(map[string]any, len(want))
	for key, value := range want {
		out[key] = value
		if one, has := of[key]; has {
			out[key] = wordingOf(md, one, value)
		}
	}
	return out
}

func messageOfField(fd protoreflect.FieldDescriptor) protoreflect.MessageDescriptor {
	if fd == nil {
		return nil
	}
	return fd.Message()
}

// isDefault says whether a value that a canonical form leaves out has the type that it would have
// there.
func isDefault(fd protoreflect.FieldDescriptor, value any) bool {
	switch value := value.(type) {
	case map[string]any:
		return fd.IsMap()
	case []any:
		return fd.IsList()
	case bool:
		return fd.Kind() == protoreflect.BoolKind
	case json.Number:
		switch fd.Kind() {
		case protoreflect.EnumKind, protoreflect.Int64Kind, protoreflect.Uint64Kind, protoreflect.Sint64Kind, protoreflect.Fixed64Kind, protoreflect.Sfixed64Kind:
			return false
		}
		return true
	case string:
		switch fd.Kind() {
		case protoreflect.StringKind, protoreflect.BytesKind:
			return true
		case protoreflect.EnumKind:
			return fd.Enum().Values().ByName(protoreflect.Name(value)) != nil
		}
	}
	return false
}

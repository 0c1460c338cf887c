package plan

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/portolan-mesh/portolan/storage/config"
)

// A newer binary may have stored fields that this one does not know. A writer that uses
// this binary cannot mean to remove them. Messages hold such fields themselves; for specs
// that are Go structs, config.MarshalSpec keeps them.

// spec returns the spec to store in place of another, and whether the two differ.
func spec(before, after any) (merged any, changed bool) {
	if encoded, ok := before.(*anypb.Any); ok {
		return respecify(encoded, after)
	}
	old, isMessage := before.(proto.Message)
	replacement, isToBe := after.(proto.Message)
	if isMessage && isToBe {
		return specMessage(old, replacement)
	}
	if config.SameSpec(before, after) {
		return before, false
	}
	return after, true
}

// specMessage is like spec, for messages. Fields that this binary does not know stay,
// unless the new spec has unknown fields itself: then it was read from the store.
func specMessage(before, after proto.Message) (merged proto.Message, changed bool) {
	if proto.Equal(before, after) {
		return before, false
	}
	if !HasUnknown(before) || HasUnknown(after) {
		return after, true
	}
	known := proto.Clone(before)
	strip(known.ProtoReflect())
	if proto.Equal(known, after) {
		return before, false
	}
	merged = proto.Clone(after)
	keep(before.ProtoReflect(), merged.ProtoReflect())
	return merged, true
}

// unknownKept says whether a merged spec has fields that this binary does not know and that the
// replacement lacks.
func unknownKept(merged, replacement any) bool {
	m, ok := merged.(proto.Message)
	r, both := replacement.(proto.Message)
	return ok && both && m != r && HasUnknown(m) && !HasUnknown(r)
}

// HasUnknown says whether a message has fields, at any depth, that this binary
// does not know.
func HasUnknown(m proto.Message) bool {
	found := false
	each(m.ProtoReflect(), func(m protoreflect.Message) { found = found || len(m.GetUnknown()) > 0 })
	return found
}

func strip(m protoreflect.Message) {
	each(m, func(m protoreflect.Message) {
		if len(m.GetUnknown()) > 0 {
			m.SetUnknown(nil)
		}
	})
}

// each visits a message and all messages in it.
func each(m protoreflect.Message, visit func(protoreflect.Message)) {
	visit(m)
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.IsMap() && field.MapValue().Message() != nil:
			value.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
				each(v.Message(), visit)
				return true
			})
		case field.IsList() && field.Message() != nil:
			for i := range value.List().Len() {
				each(value.List().Get(i).Message(), visit)
			}
		case !field.IsMap() && !field.IsList() && field.Message() != nil:
			each(value.Message(), visit)
		}
		return true
	})
}

// keep copies the unknown fields of the earlier message into the later, at the places that
// both have: the message itself, its fields, and the values of its maps. In lists it pairs
// elements of the same position, if nothing else about them has changed.
func keep(from, to protoreflect.Message) {
	to.SetUnknown(from.GetUnknown())
	to.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.IsMap() && field.MapValue().Message() != nil:
			value.Map().Range(func(key protoreflect.MapKey, v protoreflect.Value) bool {
				if then := from.Get(field).Map(); then.Has(key) {
					keep(then.Get(key).Message(), v.Message())
				}
				return true
			})
		case field.IsList() && field.Message() != nil:
			keepElements(from.Get(field).List(), value.List())
		case !field.IsMap() && !field.IsList() && field.Message() != nil && from.Has(field):
			keep(from.Get(field).Message(), value.Message())
		}
		return true
	})
}

func keepElements(from, to protoreflect.List) {
	for i := range min(from.Len(), to.Len()) {
		merged, changed := specMessage(from.Get(i).Message().Interface(), to.Get(i).Message().Interface())
		if !changed {
			to.Set(i, protoreflect.ValueOfMessage(proto.Clone(merged).ProtoReflect()))
		}
	}
}

package patch

import (
	"bytes"
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
)

// merging merges messages as proto.Merge does, with the exceptions of Istio (pkg/proto/merge) and
// those that users expect: a Duration, a Timestamp, a wrapper such as BoolValue and an Any are
// values, which are replaced as a whole. So "0s" and false have an effect where the field is set.
type merging struct {
	// replaceLists replaces a list of the target, at any depth, by that of the patch; otherwise the
	// patch's elements come after the target's.
	replaceLists bool
}

// values are the messages that are replaced as a whole.
var values = map[protoreflect.FullName]bool{
	"google.protobuf.Any":         true,
	"google.protobuf.BoolValue":   true,
	"google.protobuf.BytesValue":  true,
	"google.protobuf.DoubleValue": true,
	"google.protobuf.Duration":    true,
	"google.protobuf.FloatValue":  true,
	"google.protobuf.Int32Value":  true,
	"google.protobuf.Int64Value":  true,
	"google.protobuf.StringValue": true,
	"google.protobuf.Timestamp":   true,
	"google.protobuf.UInt32Value": true,
	"google.protobuf.UInt64Value": true,
	"google.protobuf.Value":       true,
}

// message merges src into dst, which are of one type. They share nothing afterwards.
func (o merging) message(dst, src protoreflect.Message) {
	src.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.IsList():
			if o.replaceLists {
				dst.Clear(field)
			}
			o.list(dst.Mutable(field).List(), value.List(), field)
		case field.IsMap():
			o.entries(dst.Mutable(field).Map(), value.Map(), field)
		case field.Message() == nil:
			dst.Set(field, copyOf(value, field))
		case values[field.Message().FullName()]:
			dst.Set(field, clone(value.Message()))
		default:
			o.message(dst.Mutable(field).Message(), value.Message())
		}
		return true
	})
	if unknown := src.GetUnknown(); len(unknown) > 0 {
		dst.SetUnknown(append(bytes.Clone(dst.GetUnknown()), unknown...))
	}
}

func (o merging) list(dst, src protoreflect.List, field protoreflect.FieldDescriptor) {
	for i := range src.Len() {
		dst.Append(copyOf(src.Get(i), field))
	}
}

// entries replaces the entries of the target that have the keys of the patch.
func (o merging) entries(dst, src protoreflect.Map, field protoreflect.FieldDescriptor) {
	src.Range(func(key protoreflect.MapKey, value protoreflect.Value) bool {
		dst.Set(key, copyOf(value, field.MapValue()))
		return true
	})
}

// copyOf returns the value of a field, or an element of its list, that shares nothing with it.
func copyOf(value protoreflect.Value, field protoreflect.FieldDescriptor) protoreflect.Value {
	switch {
	case field.Message() != nil:
		return clone(value.Message())
	case field.Kind() == protoreflect.BytesKind:
		return protoreflect.ValueOfBytes(bytes.Clone(value.Bytes()))
	}
	return value
}

func clone(m protoreflect.Message) protoreflect.Value {
	return protoreflect.ValueOfMessage(proto.Clone(m.Interface()).ProtoReflect())
}

// packed merges the messages in two Anys. If they are of different types, that of the patch stands
// for the target's. The result keeps the rules of Envoy's API.
func (o merging) packed(dst, src *anypb.Any) (*anypb.Any, error) {
	if dst.GetTypeUrl() != src.GetTypeUrl() {
		return proto.CloneOf(src), nil
	}
	target, err := dst.UnmarshalNew()
	if err != nil {
		return nil, fmt.Errorf("read the %s to merge into: %w", dst.GetTypeUrl(), err)
	}
	patch, err := src.UnmarshalNew()
	if err != nil {
		return nil, fmt.Errorf("read the %s to merge: %w", src.GetTypeUrl(), err)
	}
	o.message(target.ProtoReflect(), patch.ProtoReflect())
	return pack(target, dst.GetTypeUrl())
}

// pack packs a message that must keep the rules of Envoy's API, always with the same bytes.
func pack(m proto.Message, url string) (*anypb.Any, error) {
	if err := broken(m); err != nil {
		return nil, err
	}
	content, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("marshal %s: %w", m.ProtoReflect().Descriptor().FullName(), err)
	}
	return &anypb.Any{TypeUrl: url, Value: content}, nil
}

// configured merges a filter, or a transport socket, into one of the same message: what has a name
// and a typed_config. The configurations are merged as packed does.
func (o merging) configured(dst, src protoreflect.Message) error {
	field := dst.Descriptor().Fields().ByName("typed_config")
	if !src.Has(field) {
		o.message(dst, src)
		return nil
	}
	if !dst.Has(field) && dst.WhichOneof(field.ContainingOneof()) != nil {
		return fmt.Errorf("%s gets its configuration by itself (config_discovery), so nothing can be merged into it: use the objects that it is made of, or REPLACE",
			dst.Get(dst.Descriptor().Fields().ByName("name")))
	}
	merged := proto.CloneOf(src.Get(field).Message().Interface().(*anypb.Any))
	if dst.Has(field) {
		var err error
		if merged, err = o.packed(dst.Get(field).Message().Interface().(*anypb.Any), merged); err != nil {
			return err
		}
	}
	o.message(dst, src)
	dst.Set(field, protoreflect.ValueOfMessage(merged.ProtoReflect()))
	return nil
}

// valid returns the first rule of Envoy's API that a message breaks, if its Go type has rules. It
// does not look into Anys.
func valid(m proto.Message) error {
	if ruled, ok := m.(interface{ Validate() error }); ok {
		if err := ruled.Validate(); err != nil {
			return fmt.Errorf("breaks a rule of Envoy's API: %w", err)
		}
	}
	return nil
}

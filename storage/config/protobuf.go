package config

import (
	"encoding/json"
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
)

// message is the form of protobuf messages. They hold unknown fields themselves.
type message struct{}

func (message) clone(spec any) any { return proto.Clone(spec.(proto.Message)) }

func (message) equal(a, b any) bool { return proto.Equal(a.(proto.Message), b.(proto.Message)) }

func (message) toJSON(spec any) (json.RawMessage, error) {
	return protojson.Marshal(spec.(proto.Message))
}

func (message) marshal(spec any, _ []byte) ([]byte, error) {
	return proto.MarshalOptions{Deterministic: true}.Marshal(spec.(proto.Message))
}

func (message) path() string { return specField }

func (message) typeURL(spec any) string { return typeURLPrefix + string(nameOf(spec.(proto.Message))) }

// typeURLPrefix begins the type URLs of protobuf.
const typeURLPrefix = "type.googleapis.com/"

func nameOf(m proto.Message) protoreflect.FullName { return m.ProtoReflect().Descriptor().FullName() }

// messageOf is the type of pointers to T, which are messages.
type messageOf[T any] interface {
	*T
	proto.Message
}

// Protobuf returns the codec of a kind whose spec is a message: *T.
func Protobuf[T any, M messageOf[T]]() Codec { return protobuf[T, M]{} }

type protobuf[T any, M messageOf[T]] struct{}

func (protobuf[T, M]) New() any { return M(new(T)) }

func (protobuf[T, M]) Path() string { return specField }

func (protobuf[T, M]) Veiled() bool { return false }

func (protobuf[T, M]) keepsText() bool { return true }

func (protobuf[T, M]) Is(spec any) bool {
	m, ok := spec.(M)
	return ok && m != nil
}

func (protobuf[T, M]) Check(spec any) error {
	m, ok := spec.(proto.Message)
	want := nameOf(M(nil))
	switch {
	case spec == nil, ok && !m.ProtoReflect().IsValid():
		return errNoSpec
	case !ok:
		return fmt.Errorf("the spec is a %T, where a %s belongs", spec, want)
	case nameOf(m) != want:
		return fmt.Errorf("the spec is a %s, where a %s belongs", nameOf(m), want)
	}
	return checkReadable(specField, m)
}

var errNoSpec = errors.New("the spec is missing")

func (protobuf[T, M]) ReadJSON(text []byte) (any, error) {
	m := M(new(T))
	lenient := protojson.UnmarshalOptions{DiscardUnknown: true}
	err := lenient.Unmarshal(text, m)
	if err != nil && lenient.Unmarshal(secondsOnly(m.ProtoReflect().Descriptor(), text), m) == nil {
		err = nil
	}
	return m, err
}

func (protobuf[T, M]) Unmarshal(stored *anypb.Any) (any, error) {
	m := M(new(T))
	err := stored.UnmarshalTo(m)
	return m, err
}

func (protobuf[T, M]) Known(stored *anypb.Any) bool {
	return hasOnlyKnownFields(stored.GetValue(), M(nil).ProtoReflect().Descriptor())
}

func (protobuf[T, M]) decode(o *object, raw json.RawMessage) any {
	m := M(new(T))
	o.into(specField, m, raw)
	return m
}

// hasOnlyKnownFields says whether an encoded message has no field, at any depth, that this
// binary does not know.
func hasOnlyKnownFields(encoded []byte, message protoreflect.MessageDescriptor) bool {
	for len(encoded) > 0 {
		number, wire, n := protowire.ConsumeTag(encoded)
		if n < 0 {
			return false
		}
		encoded = encoded[n:]
		field := message.Fields().ByNumber(number)
		if n = protowire.ConsumeFieldValue(number, wire, encoded); n < 0 || field == nil {
			return false
		}
		if inner := field.Message(); inner != nil {
			value, _ := protowire.ConsumeBytes(encoded)
			if wire != protowire.BytesType || !hasOnlyKnownFields(value, inner) {
				return false
			}
		}
		encoded = encoded[n:]
	}
	return true
}

package envoytest

import (
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
)

// Check compares a message with its JSON form. It also checks that the message keeps
// Envoy's rules and uses no deprecated field.
func Check(t *testing.T, got proto.Message, want string) {
	t.Helper()
	expected := got.ProtoReflect().New().Interface()
	if err := protojson.Unmarshal([]byte(want), expected); err != nil {
		t.Fatalf("the test's own JSON: %v", err)
	}
	if diff := cmp.Diff(expected, got, protocmp.Transform()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	CheckValid(t, got)
}

// CheckValid checks that a message keeps Envoy's rules and uses no deprecated field.
func CheckValid(t *testing.T, m proto.Message) {
	t.Helper()
	if v, ok := m.(interface{ ValidateAll() error }); ok {
		if err := v.ValidateAll(); err != nil {
			t.Errorf("Envoy refuses it: %v", err)
		}
	}
	checkFields(t, m.ProtoReflect())
}

// checkFields walks all messages within m, also those in an Any.
func checkFields(t *testing.T, m protoreflect.Message) {
	t.Helper()
	if packed, ok := m.Interface().(*anypb.Any); ok {
		inner, err := packed.UnmarshalNew()
		if err != nil {
			t.Errorf("unpack: %v", err)
			return
		}
		CheckValid(t, inner)
		return
	}
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		if options, ok := field.Options().(*descriptorpb.FieldOptions); ok && options.GetDeprecated() {
			t.Errorf("%s is deprecated", field.FullName())
		}
		switch {
		case field.IsMap():
			value.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
				if field.MapValue().Message() != nil {
					checkFields(t, v.Message())
				}
				return true
			})
		case field.Message() == nil:
		case field.IsList():
			for i := range value.List().Len() {
				checkFields(t, value.List().Get(i).Message())
			}
		default:
			checkFields(t, value.Message())
		}
		return true
	})
}

package plan

import (
	"bytes"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
)

// A stored object may be given to Decide with its spec still encoded, in an Any.
// The spec of a changed object is then an Any, too, ready to be stored. This
// spares the reading of a spec that is to be replaced. It is for specs that this
// process has encoded itself, deterministically, and that are Known: of those,
// and of no others, equal specs have equal bytes.

// respecify is spec for a stored spec that is encoded.
func respecify(before *anypb.Any, after proto.Message) (encoded proto.Message, changed bool) {
	value, err := proto.MarshalOptions{Deterministic: true}.Marshal(after)
	switch {
	case err != nil:
		return after, true // whoever stores it meets the error again
	case bytes.Equal(value, before.Value):
		return before, false
	}
	return &anypb.Any{TypeUrl: before.TypeUrl, Value: value}, true
}

// Known says whether an encoded message has no field, at any depth, that this
// binary does not know.
func Known(encoded []byte, message protoreflect.MessageDescriptor) bool {
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
			if wire != protowire.BytesType || !Known(value, inner) {
				return false
			}
		}
		encoded = encoded[n:]
	}
	return true
}

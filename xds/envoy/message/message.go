package message

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// Pack wraps m in an Any, always with the same bytes. Generators pack messages that they
// make from validated objects. So a message that breaks the API's rules or cannot be
// marshalled is a programming error: Pack panics, and generate.Build recovers.
func Pack(m proto.Message) *anypb.Any {
	if err := Check(m); err != nil {
		panic(fmt.Errorf("%s: %w", m.ProtoReflect().Descriptor().FullName(), err))
	}
	out := &anypb.Any{}
	if err := anypb.MarshalFrom(out, m, proto.MarshalOptions{Deterministic: true}); err != nil {
		panic(fmt.Errorf("marshal %s: %w", m.ProtoReflect().Descriptor().FullName(), err))
	}
	return out
}

// Check returns the first rule of Envoy's API that a message breaks; Envoy would refuse
// it. It does not look into packed messages, which Pack has checked.
func Check(m proto.Message) error {
	ruled, ok := m.(interface {
		Validate() error
		ValidateAll() error
	})
	if !ok || ruled.Validate() == nil {
		return nil
	}
	return ruled.ValidateAll()
}

// Seconds returns d, or nil if d is 0, for fields in which an explicit 0 has another
// meaning.
func Seconds(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}

// Count returns n, or nil if n is 0.
func Count(n uint32) *wrapperspb.UInt32Value {
	if n == 0 {
		return nil
	}
	return wrapperspb.UInt32(n)
}

package message

import (
	"fmt"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// Pack wraps m, always in the same bytes. Generators pack messages that follow from
// validated objects. So a message that breaks the API's rules, or does not marshal, is
// a programming error, and a panic; generate.Build recovers from it.
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

// Check returns the first rule of the API that a message breaks: an Envoy would refuse
// it. It does not look into packed messages, which were checked when they were packed.
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

// Seconds is d, or nothing where d is 0: for fields in which an explicit 0
// means something else than leaving them out.
func Seconds(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}

// Count is n, or nothing where n is 0.
func Count(n uint32) *wrapperspb.UInt32Value {
	if n == 0 {
		return nil
	}
	return wrapperspb.UInt32(n)
}

// ADS is the source of resources that come over the stream that the bootstrap
// opens. Envoy waits for them without limit: the server answers every name.
func ADS() *corev3.ConfigSource {
	return &corev3.ConfigSource{
		ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
		InitialFetchTimeout:   durationpb.New(0),
		ResourceApiVersion:    corev3.ApiVersion_V3,
	}
}

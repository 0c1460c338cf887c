package plan_test

import (
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/plan"
	"github.com/portolan-mesh/portolan/storage/schema"
)

func encoded(t testing.TB, m proto.Message) *anypb.Any {
	t.Helper()
	out := &anypb.Any{}
	if err := anypb.MarshalFrom(out, m, proto.MarshalOptions{Deterministic: true}); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestAnEncodedSpecIsReplacedByAnEncodedOne(t *testing.T) {
	t.Parallel()
	stored := ruled(encoded(t, rule("v1", "v2")))
	stored.Generation = 3
	for name, c := range map[string]struct {
		after      *config.Config
		outcome    storage.Outcome
		generation int64
	}{
		"the same":      {ruled(rule("v1", "v2")), storage.Unchanged, 3},
		"another":       {ruled(rule("v1")), storage.Configured, 4},
		"another label": {labelled(ruled(rule("v1", "v2"))), storage.Configured, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			steps, err := plan.New(schema.Pilot(), []storage.Op{{Verb: storage.Put, Config: c.after}}).
				Decide(map[config.Key]*config.Config{stored.Key(): stored}, plan.Stamp{})
			if err != nil {
				t.Fatal(err)
			}
			after := steps[0].After
			if steps[0].Outcome != c.outcome || after.Generation != c.generation {
				t.Errorf("%v of generation %d", steps[0].Outcome, after.Generation)
			}
			if !config.SameSpec(after.Spec, encoded(t, c.after.Spec.(proto.Message))) {
				t.Errorf("the spec is %v", after.Spec)
			}
		})
	}
}

func labelled(c *config.Config) *config.Config {
	c.Labels = map[string]string{"a": "b"}
	return c
}

func TestWhatIsKnown(t *testing.T) {
	t.Parallel()
	top, deep, inList := rule("v1", "v2"), rule("v1", "v2"), rule("v1", "v2")
	inList.Subsets[0].Labels = map[string]string{"version": "v1"}
	known := encoded(t, inList).Value
	foreign(top, "x")
	foreign(deep.TrafficPolicy.Tls, "x")
	foreign(inList.Subsets[1], "x")
	wrongWire := protowire.AppendVarint(protowire.AppendTag(nil, 2, protowire.VarintType), 1) // of trafficPolicy
	for name, c := range map[string]struct {
		encoded []byte
		want    bool
	}{
		"nothing": {nil, true}, "known": {known, true}, "cut off": {known[:len(known)-1], false},
		"at the top": {encoded(t, top).Value, false}, "deep": {encoded(t, deep).Value, false},
		"in a list": {encoded(t, inList).Value, false}, "of another form": {wrongWire, false},
	} {
		codec := schema.Pilot().Kind(schema.DestinationRule).Codec
		if got := codec.Known(&anypb.Any{Value: c.encoded}); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func BenchmarkDecide(b *testing.B) {
	before, after := rule("v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8"), rule("v1", "v2", "v3", "v4", "v5", "v6", "v7", "v9")
	for name, spec := range map[string]proto.Message{"decoded": before, "encoded": encoded(b, before)} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			stored, op, schemas := ruled(spec), storage.Op{Verb: storage.Put, Config: ruled(after)}, schema.Pilot()
			found := map[config.Key]*config.Config{stored.Key(): stored}
			for b.Loop() {
				if _, err := plan.New(schemas, []storage.Op{op}).Decide(found, plan.Stamp{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

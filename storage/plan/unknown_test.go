package plan_test

import (
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/plan"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// foreign adds a field that this binary does not know to a message.
func foreign(m proto.Message, text string) {
	m.ProtoReflect().SetUnknown(protowire.AppendString(protowire.AppendTag(nil, 9999, protowire.BytesType), text))
}

func isForeign(m proto.Message) bool { return len(m.ProtoReflect().GetUnknown()) > 0 }

func rule(subsets ...string) *networking.DestinationRule {
	out := &networking.DestinationRule{
		Host:          "a",
		TrafficPolicy: &networking.TrafficPolicy{Tls: &networking.ClientTLSSettings{Sni: "a"}},
	}
	for _, name := range subsets {
		out.Subsets = append(out.Subsets, &networking.Subset{Name: name})
	}
	return out
}

func ruled(spec proto.Message) *config.Config {
	return &config.Config{Meta: config.Meta{GroupVersionKind: schema.DestinationRule, Name: "r", Namespace: "shop"}, Spec: spec}
}

func decide(t *testing.T, before, after *networking.DestinationRule) plan.Step {
	t.Helper()
	stored, op := ruled(before), storage.Op{Verb: storage.Put, Config: ruled(after)}
	steps, err := plan.New(schema.Pilot(), []storage.Op{op}).Decide(map[config.Key]*config.Config{stored.Key(): stored}, plan.Stamp{})
	if err != nil {
		t.Fatal(err)
	}
	return steps[0]
}

func TestFieldsUnknownHereStayWhereTheirPlaceDoes(t *testing.T) {
	t.Parallel()
	before := rule("v1", "v2", "v3")
	foreign(before, "rule")
	foreign(before.TrafficPolicy.Tls, "tls")
	for _, s := range before.Subsets {
		foreign(s, s.Name)
	}
	untouched := proto.CloneOf(before)

	same := decide(t, before, rule("v1", "v2", "v3"))
	if same.Outcome != storage.Unchanged || same.After != same.Before {
		t.Errorf("the same without them is %v", same.Outcome)
	}
	// The second subset is replaced, the third is gone, and the SNI has changed.
	changed := rule("v1", "other")
	changed.TrafficPolicy.Tls.Sni = "b"
	step := decide(t, before, changed)
	if step.Outcome != storage.Configured {
		t.Fatalf("outcome is %v", step.Outcome)
	}
	got := step.After.Spec.(*networking.DestinationRule)
	if !isForeign(got) || !isForeign(got.TrafficPolicy.Tls) || isForeign(got.TrafficPolicy) {
		t.Errorf("of the message and its fields: %v", got)
	}
	if !isForeign(got.Subsets[0]) || isForeign(got.Subsets[1]) || got.TrafficPolicy.Tls.Sni != "b" || got.Subsets[1].Name != "other" {
		t.Errorf("of its lists: %v", got)
	}
	if !proto.Equal(before, untouched) || isForeign(changed) {
		t.Error("an argument was changed")
	}
}

func TestASpecThatHasSuchFieldsItselfIsTakenAsItIs(t *testing.T) {
	t.Parallel()
	before, after := rule(), rule()
	foreign(before, "now")
	foreign(after, "then")
	step := decide(t, before, after)
	if step.Outcome != storage.Configured || !config.SameSpec(step.After.Spec, after) {
		t.Errorf("%s: %v", step.Outcome, step.After.Spec)
	}
}

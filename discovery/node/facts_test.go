package node_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/portolan-mesh/portolan/discovery/node"
)

// TestFacts: facts are read as they were written, in whole seconds. What a reader does not know,
// or is too long, or is no time, is left out.
func TestFacts(t *testing.T) {
	t.Parallel()
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	whole := node.Facts{Agent: "1.4.0", AgentSince: at, Envoy: "1.40.0", EnvoySince: at.Add(time.Hour), CertificateEnds: at.Add(24 * time.Hour), Capture: "in force", Drained: "a disk"}
	fraction := whole
	fraction.AgentSince = at.Add(300 * time.Millisecond)
	for name, c := range map[string]struct {
		of, want node.Facts
		change   func(map[string]*structpb.Value)
	}{
		"none":             {},
		"all":              {of: whole, want: whole},
		"part of a second": {of: fraction, want: whole},
		"unknown field":    {of: whole, want: whole, change: func(m map[string]*structpb.Value) { m["KERNEL"] = structpb.NewStringValue("6") }},
		"a number": {of: node.Facts{Agent: "1", Capture: "none"}, want: node.Facts{Capture: "none"},
			change: func(m map[string]*structpb.Value) { m["AGENT_VERSION"] = structpb.NewNumberValue(1) }},
		"not a time": {of: whole, want: node.Facts{Agent: "1.4.0", AgentSince: at, Envoy: "1.40.0", CertificateEnds: at.Add(24 * time.Hour), Capture: "in force", Drained: "a disk"},
			change: func(m map[string]*structpb.Value) { m["ENVOY_SINCE"] = structpb.NewStringValue("yesterday") }},
		"too long": {of: node.Facts{Agent: "1"}, change: func(m map[string]*structpb.Value) {
			m["AGENT_VERSION"] = structpb.NewStringValue(strings.Repeat("1", 257))
		}},
		"cut": {of: node.Facts{Drained: strings.Repeat("d", 300)}, want: node.Facts{Drained: strings.Repeat("d", 256)}},
	} {
		metadata := c.of.Metadata()
		if c.change != nil {
			c.change(metadata.Fields)
		}
		if got := node.FactsOf(metadata); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	if got := node.FactsOf(nil); got != (node.Facts{}) {
		t.Errorf("no metadata: %+v", got)
	}
}

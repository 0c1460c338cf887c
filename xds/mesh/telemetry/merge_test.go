package telemetry_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	telemetryv1 "istio.io/api/telemetry/v1alpha1"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/mesh/telemetry"
)

// read reads the specs of Telemetries, the widest first.
func read(t *testing.T, specs ...string) []*telemetry.Telemetry {
	t.Helper()
	var out []*telemetry.Telemetry
	for i, spec := range specs {
		message := &telemetryv1.Telemetry{}
		if err := config.DecodeMessage("spec", []byte(spec), message); err != nil {
			t.Fatal(err)
		}
		key := config.Meta{GroupVersionKind: schema.Telemetry, Name: string(rune('a' + i)), Namespace: "shop"}
		out = append(out, telemetry.New(&config.Config{Meta: key, Spec: message}, nil))
	}
	return out
}

// sections returns a section of each that has it.
func sections[P comparable](all []*telemetry.Telemetry, of func(*telemetry.Telemetry) P) (out []P) {
	var none P
	for _, t := range all {
		if p := of(t); p != none {
			out = append(out, p)
		}
	}
	return out
}

// TestLogging: the most specific level that names providers decides which there are, and the entries
// in their order which of them log.
func TestLogging(t *testing.T) {
	t.Parallel()
	type logs = []telemetry.Log
	own := logs{{Provider: telemetry.Own}}
	for name, c := range map[string]struct {
		specs          []string
		defaults       []string
		client, server logs
	}{
		"nothing":              {nil, nil, own, own},
		"defaults":             {nil, []string{"b", "a"}, logs{{Provider: "a"}, {Provider: "b"}}, logs{{Provider: "a"}, {Provider: "b"}}},
		"another section":      {[]string{`{tracing: [{}]}`}, nil, own, own},
		"off":                  {[]string{`{accessLogging: [{disabled: true}]}`}, nil, nil, nil},
		"default off":          {[]string{`{accessLogging: [{disabled: true}]}`}, []string{"a"}, nil, nil},
		"servers alone":        {[]string{`{accessLogging: [{match: {mode: SERVER}, providers: [{name: a}]}]}`}, []string{"a"}, own, logs{{Provider: "a"}}},
		"off for clients":      {[]string{`{accessLogging: [{providers: [{name: a}]}, {match: {mode: CLIENT}, disabled: true}]}`}, nil, nil, logs{{Provider: "a"}}},
		"filtered":             {[]string{`{accessLogging: [{providers: [{name: a}], filter: {expression: x}}]}`}, nil, logs{{"a", "x"}}, logs{{"a", "x"}}},
		"own log filtered":     {[]string{`{accessLogging: [{filter: {expression: x}}]}`}, nil, logs{{"", "x"}}, logs{{"", "x"}}},
		"several":              {[]string{`{accessLogging: [{providers: [{name: b}, {name: a}]}]}`}, nil, logs{{Provider: "a"}, {Provider: "b"}}, logs{{Provider: "a"}, {Provider: "b"}}},
		"namespace instead":    {[]string{`{accessLogging: [{providers: [{name: a}]}]}`, `{accessLogging: [{providers: [{name: b}]}]}`}, nil, logs{{Provider: "b"}}, logs{{Provider: "b"}}},
		"namespace off":        {[]string{`{accessLogging: [{providers: [{name: a}]}]}`, `{accessLogging: [{disabled: true}]}`}, nil, nil, nil},
		"workload on again":    {[]string{`{accessLogging: [{providers: [{name: a}], filter: {expression: x}}]}`, `{accessLogging: [{disabled: true}]}`, `{accessLogging: [{}]}`}, nil, logs{{"a", "x"}}, logs{{"a", "x"}}},
		"another filter below": {[]string{`{accessLogging: [{providers: [{name: a}], filter: {expression: x}}]}`, `{accessLogging: [{filter: {expression: z}}]}`}, nil, logs{{"a", "z"}}, logs{{"a", "z"}}},
	} {
		for d, want := range map[telemetry.Direction]logs{telemetry.Client: c.client, telemetry.Server: c.server} {
			levels := sections(read(t, c.specs...), func(t *telemetry.Telemetry) *telemetry.Logging { return t.Logging(d) })
			if diff := cmp.Diff(want, telemetry.MergeLogging(levels, c.defaults)); diff != "" {
				t.Errorf("%s, direction %d: (-want +got)\n%s", name, d, diff)
			}
		}
	}
}

// TestTracing: each entry overrides what those before it have set.
func TestTracing(t *testing.T) {
	t.Parallel()
	five := 5.0
	for name, c := range map[string]struct {
		specs          []string
		defaults       []string
		client, server *telemetry.Trace
	}{
		"nothing":     {},
		"default":     {nil, []string{"z"}, &telemetry.Trace{Provider: "z", RequestID: true, IstioTags: true}, &telemetry.Trace{Provider: "z", RequestID: true, IstioTags: true}},
		"no provider": {[]string{`{tracing: [{randomSamplingPercentage: 5}]}`}, nil, nil, nil},
		"levels": {[]string{`{tracing: [{providers: [{name: z}], randomSamplingPercentage: 5, useRequestIdForTraceSampling: false}]}`, `{tracing: [{match: {mode: CLIENT}, providers: [{name: o}], enableIstioTags: false, disableContextPropagation: true}]}`}, nil,
			&telemetry.Trace{Provider: "o", Sampling: &five, Isolated: true}, &telemetry.Trace{Provider: "z", Sampling: &five, IstioTags: true}},
		"off":      {[]string{`{tracing: [{providers: [{name: z}]}]}`, `{tracing: [{match: {mode: SERVER}, disableSpanReporting: true}]}`}, nil, &telemetry.Trace{Provider: "z", RequestID: true, IstioTags: true}, nil},
		"on again": {[]string{`{tracing: [{disableSpanReporting: true}]}`, `{tracing: [{disableSpanReporting: false}]}`}, []string{"z"}, &telemetry.Trace{Provider: "z", RequestID: true, IstioTags: true}, &telemetry.Trace{Provider: "z", RequestID: true, IstioTags: true}},
	} {
		for d, want := range map[telemetry.Direction]*telemetry.Trace{telemetry.Client: c.client, telemetry.Server: c.server} {
			levels := sections(read(t, c.specs...), func(t *telemetry.Telemetry) *telemetry.Tracing { return t.Tracing(d) })
			if diff := cmp.Diff(want, telemetry.MergeTracing(levels, c.defaults), protocmp.Transform()); diff != "" {
				t.Errorf("%s, direction %d: (-want +got)\n%s", name, d, diff)
			}
		}
	}
}

// TestMetrics: overrides are applied in order, from the widest level on.
func TestMetrics(t *testing.T) {
	t.Parallel()
	all := read(t, `{metrics: [{providers: [{name: p}], overrides: [{match: {metric: ALL_METRICS}, disabled: true}, {match: {mode: CLIENT}, tagOverrides: {x: {value: a}}}]}]}`,
		`{metrics: [{overrides: [{match: {metric: REQUEST_COUNT}, disabled: false, tagOverrides: {w: {operation: REMOVE}}}, {match: {customMetric: own}, disabled: false}]}]}`)
	for d, tags := range map[telemetry.Direction]int{telemetry.Client: 2, telemetry.Server: 1} {
		got := telemetry.MergeMetrics(sections(all, func(t *telemetry.Telemetry) *telemetry.Metrics { return t.Metrics(d) }), []string{"other"})
		if len(got) != 1 || got[0].Provider != "p" {
			t.Fatalf("direction %d: %v", d, got)
		}
		count, size := got[0].Metrics[telemetryv1.MetricSelector_REQUEST_COUNT], got[0].Metrics[telemetryv1.MetricSelector_REQUEST_SIZE]
		if count.Disabled || len(count.Tags) != tags || !size.Disabled || len(size.Tags) != tags-1 {
			t.Errorf("direction %d: %v, %v", d, count, size)
		}
	}
	if got := telemetry.MergeMetrics(nil, []string{"p"}); len(got) != 1 || len(got[0].Metrics) != 0 {
		t.Errorf("a default provider: %v", got)
	}
}

// TestNewKeepsEqualParts: a new version of an object has the parts of the last one that are equal, so
// that a changed section concerns its readers alone.
func TestNewKeepsEqualParts(t *testing.T) {
	t.Parallel()
	first := read(t, `{accessLogging: [{match: {mode: SERVER}}], tracing: [{randomSamplingPercentage: 1}], metrics: [{}]}`)[0]
	changed := read(t, `{accessLogging: [{match: {mode: SERVER}, disabled: true}], tracing: [{randomSamplingPercentage: 1}]}`)[0]
	second := telemetry.New(changed.Config, first)
	for name, same := range map[string]bool{
		"logging of clients": second.Logging(telemetry.Client) == first.Logging(telemetry.Client),
		"tracing":            second.Tracing(telemetry.Server) == first.Tracing(telemetry.Server),
		"not logging":        second.Logging(telemetry.Server) != first.Logging(telemetry.Server),
		"not metrics":        second.Metrics(telemetry.Client) == nil,
	} {
		if !same {
			t.Errorf("%s: it is not so", name)
		}
	}
}

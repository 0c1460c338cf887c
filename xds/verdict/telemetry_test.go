package verdict_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/portolan-mesh/portolan/xds/verdict"
	"github.com/portolan-mesh/portolan/xds/verdict/index"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestTelemetries: a Telemetry that an older one replaces, whose providers get nothing, or that is
// for nobody, has a verdict.
func TestTelemetries(t *testing.T) {
	t.Parallel()
	const providers = `
extensionProviders:
- {name: lines, envoyFileAccessLog: {path: /dev/null}}
- {name: spans, zipkin: {service: web.example.com, port: 80}}
- {name: gone, envoyHttpAls: {service: none.example.com, port: 80}}
- {name: old, lightstep: {service: web.example.com, port: 80, accessToken: x}}
`
	for name, c := range map[string]struct {
		specs map[string]string // by name, from the oldest
		want  []string
	}{
		"sound":      {map[string]string{"a": `{accessLogging: [{providers: [{name: lines}, {name: envoy}]}], tracing: [{providers: [{name: spans}]}], metrics: [{providers: [{name: prometheus}]}]}`}, nil},
		"no such":    {map[string]string{"a": `{accessLogging: [{providers: [{name: nope}]}]}`}, []string{"a PTL0452 spec.accessLogging[0].providers[0].name"}},
		"no service": {map[string]string{"a": `{accessLogging: [{providers: [{name: lines}, {name: gone}]}]}`}, []string{"a PTL0452 spec.accessLogging[0].providers[1].name"}},
		"unfit":      {map[string]string{"a": `{tracing: [{providers: [{name: old}]}], metrics: [{providers: [{name: lines}]}]}`}, []string{"a PTL0453 spec.metrics[0].providers[0].name", "a PTL0453 spec.tracing[0].providers[0].name"}},
		"nowhere":    {map[string]string{"a": `{tracing: [{randomSamplingPercentage: 1}]}`}, []string{"a PTL0452 spec.tracing"}},
		"two":        {map[string]string{"a": `{accessLogging: [{}]}`, "b": `{accessLogging: [{}]}`}, []string{"b PTL0451 spec.selector beside a"}},
		"nobody":     {map[string]string{"a": `{selector: {matchLabels: {app: none}}, accessLogging: [{}]}`}, []string{"a PTL0371 spec.selector"}},
		"no gateway": {map[string]string{"a": `{targetRefs: [{kind: Gateway, group: networking.istio.io, name: none}], accessLogging: [{}]}`}, []string{"a PTL0103 spec.targetRefs[0].name"}},
	} {
		w := xdstest.NewWorld(t)
		w.SetMesh(providers)
		w.Apply(xdstest.Object("ServiceEntry", "web", `{hosts: [web.example.com], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, endpoints: [{address: 10.0.0.9}]}`))
		for _, n := range []string{"a", "b"} {
			if spec, ok := c.specs[n]; ok {
				w.Apply(xdstest.Object("Telemetry", n, spec))
			}
		}
		got := slices.DeleteFunc(said((*index.Index)(nil).Next(verdict.Facts{Mesh: w.Context()})), func(v string) bool { return v[0] != 'a' && v[0] != 'b' })
		if diff := cmp.Diff(c.want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", name, diff)
		}
	}
}

// TestMeshConfigs: a MeshConfig whose default providers get nothing, or whose format of access logs does
// not fit their encoding, has a verdict.
func TestMeshConfigs(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string][]string{
		`{extensionProviders: [{name: lines, envoyFileAccessLog: {path: /dev/null}}], defaultProviders: {accessLogging: [lines, envoy], metrics: [prometheus]}, accessLogFormat: '%PROTOCOL%'}`: nil,
		`{defaultProviders: {accessLogging: [nope], metrics: [envoy], tracing: [nope]}}`: {
			"default PTL0452 spec.defaultProviders.accessLogging[0]", "default PTL0452 spec.defaultProviders.tracing[0]", "default PTL0453 spec.defaultProviders.metrics[0]"},
		`{extensionProviders: [{name: spans, zipkin: {service: none.example.com, port: 80}}], defaultProviders: {tracing: [spans]}}`: {"default PTL0452 spec.defaultProviders.tracing[0]"},
		`{accessLogEncoding: JSON, accessLogFormat: '{"path": "%REQ(:PATH)%"}'}`:                                                     nil,
		`{accessLogEncoding: JSON, accessLogFormat: '{"path": "%REQ(:PATH)%"'}`:                                                      {"default PTL0433 spec.accessLogFormat"},
	} {
		w := xdstest.NewWorld(t, "apiVersion: portolan.io/v1\nkind: MeshConfig\nmetadata: {name: default, namespace: istio-system}\nspec: "+spec)
		got := said((*index.Index)(nil).Next(verdict.Facts{Mesh: w.Context()}))
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", spec, diff)
		}
	}
}

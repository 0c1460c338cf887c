package verdict_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/status"
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
		"two":        {map[string]string{"a": `{accessLogging: [{}]}`, "b": `{accessLogging: [{}]}`}, []string{"b PTL0451 spec beside a"}},
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
		`{extensionProviders: [{name: lines, envoyFileAccessLog: {path: /dev/null}}], defaultProviders: {accessLogging: [lines, envoy], metrics: [prometheus]}, accessLogFile: /dev/null, accessLogFormat: '%PROTOCOL%'}`: nil,
		`{defaultProviders: {accessLogging: [nope], metrics: [envoy], tracing: [nope]}}`: {
			"default PTL0452 spec.defaultProviders.accessLogging[0]", "default PTL0452 spec.defaultProviders.tracing[0]", "default PTL0453 spec.defaultProviders.metrics[0]"},
		`{extensionProviders: [{name: spans, zipkin: {service: none.example.com, port: 80}}], defaultProviders: {tracing: [spans]}}`: {"default PTL0452 spec.defaultProviders.tracing[0]"},
		`{accessLogFile: /dev/null, accessLogEncoding: JSON, accessLogFormat: '{"path": "%REQ(:PATH)%"}'}`:                           nil,
		`{accessLogFile: /dev/null, accessLogEncoding: JSON, accessLogFormat: '{"path": "%REQ(:PATH)%"'}`:                            {"default PTL0433 spec.accessLogFormat"},
		`{accessLogFormat: '%PROTOCOL%'}`: {"default PTL0434 spec.accessLogFormat"},
		`{accessLogEncoding: JSON}`:       {"default PTL0434 spec.accessLogEncoding"},
	} {
		w := xdstest.NewWorld(t, "apiVersion: portolan.io/v1\nkind: MeshConfig\nmetadata: {name: default, namespace: istio-system}\nspec: "+spec)
		got := said((*index.Index)(nil).Next(verdict.Facts{Mesh: w.Context()}))
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", spec, diff)
		}
	}
}

// TestDiscoverySelectors: selectors of namespaces have a verdict if there is no cluster for them, and if
// one cannot be read, which only a MeshConfig that did not come by the config API may have.
func TestDiscoverySelectors(t *testing.T) {
	t.Parallel()
	const some, odd = `[{matchLabels: {mesh: "on"}}]`, `[{matchLabels: {mesh: "on"}}, {matchExpressions: [{key: env, operator: Exists}]}]`
	const none = "default PTL0435 spec.discoverySelectors"
	var x *index.Index
	for _, c := range []struct {
		name, selectors, secret string
		selects                 bool
		want                    []string
	}{
		{name: "no cluster", selectors: some, want: []string{none}},
		{name: "a cluster of a Secret", selectors: some, secret: ofClusters("istio-system/east", 1, "true", "east")},
		{name: "no cluster again", selectors: some, want: []string{none}},
		{name: "a Secret elsewhere", selectors: some, secret: ofClusters("istio-system/east", 1, "no", "east"), want: []string{none}},
		{name: "no selector", selectors: "[]"},
		{name: "a cluster of a flag", selectors: some, selects: true},
		{name: "one that cannot be read", selectors: odd, selects: true, want: []string{"default PTL0436 spec.discoverySelectors[1]"}},
	} {
		documents := []string{"apiVersion: portolan.io/v1\nkind: MeshConfig\nmetadata: {name: default, namespace: istio-system}\nspec: {discoverySelectors: " + c.selectors + "}"}
		if c.secret != "" {
			documents = append(documents, c.secret)
		}
		facts := verdict.Facts{Mesh: xdstest.NewWorld(t, documents...).Context(), Selects: c.selects}
		if c.selectors == odd { // as the config API would not take it
			spec := facts.Configs().Value(config.Key{Kind: schema.MeshConfig, Namespace: "istio-system", Name: "default"}.Path()).Spec.(*meshv1alpha1.MeshConfig)
			spec.DiscoverySelectors[1].MatchExpressions[0].Operator = "Like"
		}
		if c.selects {
			x = nil // flags stay while a server runs
		}
		x = x.Next(facts)
		if diff := cmp.Diff(c.want, said(x), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", c.name, diff)
		}
	}
}

// TestFormatsOfLogs: a format of access logs has a verdict, unless something is logged in it.
func TestFormatsOfLogs(t *testing.T) {
	t.Parallel()
	const format = "apiVersion: portolan.io/v1\nkind: MeshConfig\nmetadata: {name: default, namespace: istio-system}\nspec: {accessLogFormat: '%PROTOCOL%'}"
	for name, c := range map[string]struct {
		file, telemetry string
		want            []string
	}{
		"nothing":                   {"", "", []string{"default PTL0434 spec.accessLogFormat"}},
		"a file of the mesh":        {"accessLogFile: /dev/null", "", nil},
		"a default provider":        {"defaultProviders: {accessLogging: [envoy]}", "", nil},
		"a provider of a mesh":      {"", `{accessLogging: [{providers: [{name: envoy}]}]}`, nil},
		"another provider":          {"", `{accessLogging: [{providers: [{name: other}]}]}`, []string{"default PTL0434 spec.accessLogFormat", "a PTL0452 spec.accessLogging[0].providers[0].name"}},
		"an entry without provider": {"", `{accessLogging: [{disabled: false}]}`, []string{"default PTL0434 spec.accessLogFormat"}},
	} {
		objects := []string{format}
		if c.telemetry != "" {
			objects = append(objects, xdstest.Object("Telemetry", "istio-system/a", c.telemetry))
		}
		w := xdstest.NewWorld(t)
		if c.file != "" {
			w.SetMesh(c.file)
		}
		w.Apply(objects...)
		got := said((*index.Index)(nil).Next(verdict.Facts{Mesh: w.Context()}))
		if diff := cmp.Diff(c.want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", name, diff)
		}
	}
}

// TestUnmatchedTraffic: what a Telemetry or a WasmPlugin says of traffic that its proxies do not have,
// has a verdict.
func TestUnmatchedTraffic(t *testing.T) {
	t.Parallel()
	of := func(kind, node, address, app string) *status.Proxy {
		return &status.Proxy{Node: kind + "~" + address + "~" + node + "~d", Type: kind, Namespace: "default", Addresses: []string{address}, Labels: map[string]string{"app": app}, Replica: "r"}
	}
	edge, web := of("router", "edge", "10.0.0.1", "edge"), of("sidecar", "web", "10.0.0.2", "web")
	const ofEdge, url = "selector: {matchLabels: {app: edge}}, ", "url: file:///x.wasm, "
	for name, c := range map[string]struct {
		kind, spec string
		want       []string
	}{
		"a Telemetry for gateways": {"Telemetry", "{" + ofEdge + `accessLogging: [{}, {match: {mode: SERVER}}], metrics: [{overrides: [{match: {mode: SERVER}, disabled: true}]}], tracing: [{match: {mode: SERVER}, randomSamplingPercentage: 1}]}`,
			[]string{"a PTL0452 spec.tracing", "a PTL0455 spec.accessLogging[1].match.mode", "a PTL0455 spec.metrics[0].overrides[0].match.mode", "a PTL0455 spec.tracing[0].match.mode"}},
		"a Telemetry for all":        {"Telemetry", `{accessLogging: [{match: {mode: SERVER}}]}`, nil},
		"a Telemetry of clients":     {"Telemetry", "{" + ofEdge + `accessLogging: [{match: {mode: CLIENT}}]}`, nil},
		"a plugin for gateways":      {"WasmPlugin", "{" + ofEdge + url + `match: [{mode: SERVER}]}`, []string{"a PTL0484 spec.match[0].mode"}},
		"ports of a gateway":         {"WasmPlugin", "{" + ofEdge + url + `match: [{ports: [{number: 8443}, {number: 8444}]}]}`, []string{"a PTL0484 spec.match[0].ports[1].number"}},
		"ports of anybody":           {"WasmPlugin", "{" + url + `match: [{ports: [{number: 8443}, {number: 80}, {number: 8080}, {number: 9}, {number: 7001}]}]}`, []string{"a PTL0484 spec.match[0].ports[3].number"}},
		"ports of workloads":         {"WasmPlugin", "{" + url + `match: [{mode: SERVER, ports: [{number: 80}, {number: 8080}]}]}`, []string{"a PTL0484 spec.match[0].ports[0].number"}},
		"ports of services":          {"WasmPlugin", "{" + url + `match: [{mode: CLIENT, ports: [{number: 80}, {number: 8080}]}]}`, []string{"a PTL0484 spec.match[0].ports[1].number"}},
		"ports of nobody known, yet": {"WasmPlugin", "{selector: {matchLabels: {app: none}}, " + url + `match: [{ports: [{number: 9}]}]}`, []string{"a PTL0371 spec.selector"}},
	} {
		w := xdstest.NewWorld(t,
			xdstest.Object("ServiceEntry", "web", `{hosts: [web.example.com], ports: [{number: 80, targetPort: 8080, name: http, protocol: HTTP}, {number: 7001, name: tcp, protocol: TCP}], resolution: STATIC, endpoints: [{address: 10.0.0.2}]}`),
			xdstest.Object("Gateway", "door", `{selector: {app: edge}, servers: [{port: {number: 8443, name: http, protocol: HTTP}, hosts: ["*"]}]}`),
			strings.Replace(xdstest.Object(c.kind, "a", c.spec), "networking.istio.io/v1", map[string]string{"WasmPlugin": "extensions.istio.io/v1alpha1", "Telemetry": "telemetry.istio.io/v1"}[c.kind], 1))
		got := slices.DeleteFunc(said((*index.Index)(nil).Next(verdict.Facts{Mesh: w.Context(), Proxies: proxies(edge, web)})), func(v string) bool { return v[0] != 'a' })
		if diff := cmp.Diff(c.want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", name, diff)
		}
	}
}

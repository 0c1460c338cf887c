package filter_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

const reporters = `
extensionProviders:
- {name: lines, envoyFileAccessLog: {path: /dev/null}}
- {name: als, envoyHttpAls: {service: collect.test, port: 4317}}
- {name: tcp, envoyTcpAls: {service: default/collect.test, port: 4317}}
- {name: logs, envoyOtelAls: {service: collect.test, port: 4317}}
- {name: unseen, envoyOtelAls: {service: other.test, port: 4317}}
- {name: zipkin, zipkin: {service: collect.test, port: 9411, traceContextOption: USE_B3_WITH_W3C_PROPAGATION}}
- {name: datadog, datadog: {service: collect.test, port: 9411}}
- {name: skywalking, skywalking: {service: collect.test, port: 4317, accessToken: x}}
- {name: otlp, opentelemetry: {service: collect.test, port: 4317, resourceDetectors: {environment: {}, dynatrace: {}}}}
- {name: sampled, opentelemetry: {service: collect.test, port: 9411, http: {path: /v1/traces}, dynatraceSampler: {tenant: t, clusterId: 1, httpService: {service: sampler.test, port: 80, http: {path: /s}}}}}
`

// services are a service of the proxy, and those of the collectors.
const services = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: web}
spec: {hosts: [web.test], resolution: STATIC, location: MESH_INTERNAL, ports: [{number: 80, name: http, protocol: HTTP}, {number: 81, name: tcp, protocol: TCP}], endpoints: [{address: 10.0.0.1}]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: collect}
spec: {hosts: [collect.test], resolution: STATIC, ports: [{number: 4317, name: grpc, protocol: GRPC}, {number: 9411, name: http, protocol: HTTP}], endpoints: [{address: 10.0.0.9}]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: sampler}
spec: {hosts: [sampler.test], resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}], endpoints: [{address: 10.0.0.9}]}
`

// built returns the resources of a sidecar by name.
func built(t *testing.T, w *xdstest.World) map[string]*resource.Resource {
	t.Helper()
	n, out := xdstest.Node{Interception: discovery.InterceptionRedirect}, map[string]*resource.Resource{}
	for _, r := range w.Build(n, generate.For(catalogue.Types(), n.Proxy(t).Type)...) {
		out[r.Body.GetTypeUrl()+" "+r.Name] = r
	}
	return out
}

// TestReportersAreNeeded: a listener needs the clusters of all that it reports to, and of nothing else.
func TestReportersAreNeeded(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string][]string{
		"{accessLogging: [{providers: [{name: lines}, {name: unseen}, {name: zipkin}]}]}":             nil,
		"{accessLogging: [{providers: [{name: als}]}]}":                                               {"outbound|4317||collect.test"},
		"{accessLogging: [{providers: [{name: tcp}, {name: logs}, {name: lines}]}]}":                  {"outbound|4317||collect.test"},
		"{tracing: [{providers: [{name: zipkin}]}]}":                                                  {"outbound|9411||collect.test"},
		"{tracing: [{providers: [{name: datadog}]}]}":                                                 {"outbound|9411||collect.test"},
		"{tracing: [{providers: [{name: skywalking}]}]}":                                              {"outbound|4317||collect.test"},
		"{tracing: [{providers: [{name: otlp}]}]}":                                                    {"outbound|4317||collect.test"},
		"{tracing: [{providers: [{name: sampled}]}]}":                                                 {"outbound|80||sampler.test", "outbound|9411||collect.test"},
		"{accessLogging: [{providers: [{name: als}]}], tracing: [{providers: [{name: nowhere}]}]}":    {"outbound|4317||collect.test"},
		"{metrics: [{providers: [{name: prometheus}]}], accessLogging: [{providers: [{name: als}]}]}": {"outbound|4317||collect.test"},
	} {
		w := xdstest.NewWorld(t, services)
		w.SetMesh(reporters)
		w.Apply(xdstest.Object("Telemetry", "all", spec))
		seen := map[string]bool{}
		for name, r := range built(t, w) {
			message, err := r.Body.UnmarshalNew()
			if err != nil {
				t.Fatal(err)
			}
			found, err := resource.NeedsOf(message)
			if listed := resource.Ordered(slices.Collect(r.EachNeed)); err != nil || !slices.Equal(listed, found) {
				t.Errorf("%s: %s lists %v, and its message has %v, %v", spec, name, listed, found, err)
			}
			for _, need := range found {
				if strings.Contains(name, "Listener") && (strings.HasSuffix(need.Name, "collect.test") || strings.HasSuffix(need.Name, "sampler.test")) {
					seen[need.Name] = true
				}
			}
		}
		if diff := cmp.Diff(want, slices.Sorted(maps.Keys(seen))); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", spec, diff)
		}
	}
}

// TestTelemetriesChangeListenersAlone: a Telemetry changes the listeners of its direction, and no
// other resource.
func TestTelemetriesChangeListenersAlone(t *testing.T) {
	t.Parallel()
	w := xdstest.NewWorld(t, services)
	w.SetMesh(reporters)
	before := built(t, w)
	for spec, want := range map[string]func(name string) bool{
		"{tracing: [{match: {mode: SERVER}, providers: [{name: zipkin}]}]}": func(name string) bool { return strings.HasSuffix(name, "virtualInbound") },
		"{tracing: [{match: {mode: CLIENT}, providers: [{name: zipkin}]}]}": func(name string) bool {
			return !strings.HasSuffix(name, "virtualInbound") && !strings.HasSuffix(name, "virtualOutbound") // which has no requests
		},
		"{accessLogging: [{match: {mode: SERVER}, providers: [{name: lines}]}]}": func(name string) bool { return strings.HasSuffix(name, "virtualInbound") },
		"{metrics: [{providers: [{name: prometheus}]}]}":                         func(string) bool { return true },
		"{tracing: [{randomSamplingPercentage: 5}]}":                             func(string) bool { return false },
	} {
		w.Apply(xdstest.Object("Telemetry", "all", spec))
		for name, r := range built(t, w) {
			changed := r.Version != before[name].Version
			if wanted := strings.Contains(name, "Listener") && want(name); changed != wanted && !strings.HasSuffix(name, "_81") {
				t.Errorf("%s: %s changed: %v", spec, name, changed)
			}
		}
	}
}

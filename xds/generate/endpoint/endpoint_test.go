package endpoint_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/rows"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/generate/cluster"
	"github.com/portolan-mesh/portolan/xds/generate/endpoint"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/simulate"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

func TestWhichEndpoints(t *testing.T) {
	t.Parallel()
	service := func(endpoints string) string {
		return xdstest.Object("ServiceEntry", "a", "{hosts: [a.example.com], resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}, {number: 81, name: admin, protocol: HTTP, targetPort: 8081}], endpoints: ["+endpoints+"]}")
	}
	selecting := xdstest.Object("ServiceEntry", "a", "{hosts: [a.example.com], resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}], workloadSelector: {labels: {app: a}}}")
	workload := func(spec string) string { return xdstest.Object("WorkloadEntry", "w", spec) }
	subset := xdstest.Object("DestinationRule", "a", "{host: a.example.com, subsets: [{name: v1, labels: {version: v1}}, {name: all, trafficPolicy: {loadBalancer: {simple: RANDOM}}}]}")
	tests := []struct {
		name, cluster string
		documents     []string
		want          []string
	}{
		{name: "the service's port", cluster: "outbound|80||a.example.com", documents: []string{service("{address: 10.1.0.1}")}, want: []string{"10.1.0.1:80"}},
		{name: "the target port", cluster: "outbound|81||a.example.com", documents: []string{service("{address: 10.1.0.1}")}, want: []string{"10.1.0.1:8081"}},
		{name: "the endpoint's own port", cluster: "outbound|81||a.example.com", documents: []string{service("{address: 10.1.0.1, ports: {admin: 9}}")}, want: []string{"10.1.0.1:9"}},
		{name: "none", cluster: "outbound|80||a.example.com", documents: []string{service("")}},
		{name: "an unknown port", cluster: "outbound|82||a.example.com", documents: []string{service("{address: 10.1.0.1}")}},
		{name: "a subset", cluster: "outbound|80|v1|a.example.com", want: []string{"10.1.0.1:80"},
			documents: []string{subset, service("{address: 10.1.0.1, labels: {version: v1, app: a}}, {address: 10.1.0.2, labels: {version: v2}}, {address: 10.1.0.3}")}},
		{name: "a subset without labels", cluster: "outbound|80|all|a.example.com", want: []string{"10.1.0.1:80", "10.1.0.2:80"},
			documents: []string{subset, service("{address: 10.1.0.1, labels: {version: v1}}, {address: 10.1.0.2}")}},
		{name: "a selected workload", cluster: "outbound|80||a.example.com", want: []string{"10.1.0.9:80"},
			documents: []string{selecting, workload("{address: 10.1.0.9, labels: {app: a}}")}},
		{name: "a workload with a host name is left out", cluster: "outbound|80||a.example.com",
			documents: []string{selecting, workload("{address: a.example.org, labels: {app: a}}")}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := xdstest.NewWorld(t, tt.documents...).Simulate(xdstest.Node{})
			if diff := cmp.Diff(tt.want, s.EndpointsOf(tt.cluster)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestLocalitiesAndWeights(t *testing.T) {
	t.Parallel()
	s := xdstest.NewWorld(t, xdstest.Object("ServiceEntry", "a", `{hosts: [a.example.com], resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}], endpoints: [
		{address: 10.1.0.1, locality: us/b, weight: 3}, {address: 10.1.0.2, locality: eu/a/x}, {address: 10.1.0.3, locality: us/b}]}`)).Simulate(xdstest.Node{})
	type locality struct {
		Region, Zone, SubZone string
		Weight                uint32
		Weights               []uint32
	}
	var got []locality
	for _, l := range s.Assignment("outbound|80||a.example.com").GetEndpoints() {
		entry := locality{l.GetLocality().GetRegion(), l.GetLocality().GetZone(), l.GetLocality().GetSubZone(), l.GetLoadBalancingWeight().GetValue(), nil}
		for _, e := range l.GetLbEndpoints() {
			entry.Weights = append(entry.Weights, e.GetLoadBalancingWeight().GetValue())
		}
		got = append(got, entry)
	}
	want := []locality{{"eu", "a", "x", 1, []uint32{1}}, {"us", "b", "", 4, []uint32{3, 1}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// sentOf simulates a proxy that calls a service with a healthy, an unhealthy and a
// draining endpoint.
func sentOf(t *testing.T, labels map[string]string, rule string) *simulate.Proxy {
	t.Helper()
	service := &discovery.Service{
		Hostname: "a.example.com", Ports: []discovery.Port{{Name: "http", Number: 80, Protocol: discovery.HTTP}},
		Attributes: discovery.Attributes{Namespace: "default", Labels: labels},
	}
	at := func(address string, health discovery.Health) *discovery.Endpoint {
		return &discovery.Endpoint{Address: address, Port: 80, ServicePortName: "http", Weight: 1, Health: health}
	}
	endpoints := []*discovery.Endpoint{at("10.1.0.1", discovery.Healthy), at("10.1.0.2", discovery.Unhealthy), at("10.1.0.3", discovery.Draining)}
	key := rows.Key("a.example.com", "default")
	inputs := mesh.Inputs{
		Services:  pmap.Map[*mesh.ServiceRow]{}.Set(key, rows.NewService([]*discovery.Service{service}, endpoints)),
		Endpoints: pmap.Map[*mesh.EndpointRow]{}.Set(key, &mesh.EndpointRow{Hostname: "a.example.com", Namespace: "default", Endpoints: endpoints}),
	}
	if rule != "" {
		inputs.Configs = xdstest.NewWorld(t, xdstest.Object("DestinationRule", "a", rule)).Context().Inputs().Configs
	}
	push := mesh.New(inputs)
	view := mesh.NewView(push, push.ClassOf(xdstest.Node{}.Proxy(t)))
	var built []*resource.Resource
	for _, g := range []generate.Generator{cluster.Generator{}, endpoint.Generator{}} {
		r, err := generate.Build(g, view, "outbound|80||a.example.com")
		if err != nil {
			t.Fatal(err)
		}
		built = append(built, r)
	}
	s, err := simulate.New(built)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Unhealthy endpoints of any registry are sent as such and never used, unless the policy
// has a panic threshold. Draining ones are sent if sessions are persistent.
func TestWhichHealthIsSent(t *testing.T) {
	t.Parallel()
	healthy, unhealthy, draining := "10.1.0.1 UNKNOWN", "10.1.0.2 UNHEALTHY", "10.1.0.3 DRAINING"
	for name, c := range map[string]struct {
		labels map[string]string
		rule   string
		want   []string
	}{
		"by default":          {want: []string{healthy, unhealthy}},
		"minHealthPercent 0":  {rule: "{host: a.example.com, trafficPolicy: {outlierDetection: {minHealthPercent: 0}}}", want: []string{healthy, unhealthy}},
		"minHealthPercent 30": {rule: "{host: a.example.com, trafficPolicy: {outlierDetection: {minHealthPercent: 30}}}", want: []string{healthy}},
		"persistent sessions": {labels: map[string]string{"istio.io/persistent-session": "cookie"}, want: []string{healthy, unhealthy, draining}},
		"sessions by header":  {labels: map[string]string{"istio.io/persistent-session-header": "x"}, want: []string{healthy, unhealthy, draining}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := sentOf(t, c.labels, c.rule)
			var got []string
			for _, e := range s.Assignment("outbound|80||a.example.com").GetEndpoints()[0].GetLbEndpoints() {
				got = append(got, e.GetEndpoint().GetAddress().GetSocketAddress().GetAddress()+" "+e.GetHealthStatus().String())
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff([]string{"10.1.0.1:80"}, s.EndpointsOf("outbound|80||a.example.com")); diff != "" {
				t.Errorf("requests go to: %s", diff)
			}
		})
	}
}

// A proxy that waits for the endpoints of an unknown cluster gets an empty assignment.
func TestEmpty(t *testing.T) {
	t.Parallel()
	r, err := generate.Empty(endpoint.Generator{}, "outbound|1||nowhere")
	if err != nil {
		t.Fatal(err)
	}
	s, err := simulate.New([]*resource.Resource{r})
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Assignment("outbound|1||nowhere"); got == nil || len(got.GetEndpoints()) > 0 {
		t.Errorf("answer: %v", got)
	}
}

// TestWorkloadMetadata: an endpoint names its workload for telemetry in Istio's format.
func TestWorkloadMetadata(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ labels, want string }{
		"a name alone":       {"{}", "w;shop;w;;"},
		"app and version":    {"{app: web, version: v2}", "w;shop;web;v2;"},
		"labels of apps":     {"{app: a, version: v1, app.kubernetes.io/name: b, app.kubernetes.io/version: v2}", "w;shop;b;v2;"},
		"canonical":          {"{app.kubernetes.io/name: b, service.istio.io/canonical-name: c, service.istio.io/canonical-revision: v3}", "w;shop;c;v3;"},
		"the latest version": {"{app: web, version: latest}", "w;shop;web;;"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := xdstest.NewWorld(t,
				xdstest.Object("ServiceEntry", "shop/a", "{hosts: [a.example.com], resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}], workloadSelector: {labels: {}}}"),
				xdstest.Object("WorkloadEntry", "shop/w", "{address: 10.1.0.1, labels: "+c.labels+"}"))
			workload := func(n xdstest.Node) string {
				e := w.Simulate(n).Assignment("outbound|80||a.example.com").GetEndpoints()[0].GetLbEndpoints()[0]
				return e.GetMetadata().GetFilterMetadata()["istio"].GetFields()["workload"].GetStringValue()
			}
			if got := workload(xdstest.Node{}); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if got := workload(xdstest.Node{Type: discovery.Proxyless}); got != "" {
				t.Errorf("a gRPC client, which has no use for it, gets %q", got)
			}
		})
	}
}

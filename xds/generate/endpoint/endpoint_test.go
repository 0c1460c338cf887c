package endpoint_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/xds/generate/endpoint"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
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

// Only those that are healthy are sent, wherever a row comes from.
func TestUnhealthyAreLeftOut(t *testing.T) {
	t.Parallel()
	service := &discovery.Service{
		Hostname: "a.example.com", Ports: []discovery.Port{{Name: "http", Number: 80, Protocol: discovery.HTTP}},
		Attributes: discovery.Attributes{Namespace: "default"},
	}
	at := func(address string, health discovery.Health) *discovery.Endpoint {
		return &discovery.Endpoint{Address: address, Port: 80, ServicePortName: "http", Weight: 1, Health: health}
	}
	endpoints := []*discovery.Endpoint{at("10.1.0.1", discovery.Healthy), at("10.1.0.2", discovery.Unhealthy), at("10.1.0.3", discovery.Draining)}
	key := mesh.ServiceKey("a.example.com", "default")
	context := mesh.New(mesh.Inputs{
		Services:  pmap.Map[*mesh.ServiceRow]{}.Set(key, mesh.NewServiceRow([]*discovery.Service{service}, endpoints)),
		Endpoints: pmap.Map[*mesh.EndpointRow]{}.Set(key, &mesh.EndpointRow{Hostname: "a.example.com", Namespace: "default", Endpoints: endpoints}),
	})
	view := mesh.NewView(context, context.ClassOf(xdstest.Node{}.Proxy(t), nil))
	r, err := endpoint.Generator{}.Build(view, "outbound|80||a.example.com")
	if err != nil {
		t.Fatal(err)
	}
	s, err := xdstest.NewSimulation([]*resource.Resource{r})
	if err != nil {
		t.Fatal(err)
	}
	locality := s.Assignment(r.Name).GetEndpoints()[0]
	if n := len(locality.GetLbEndpoints()); n != 1 || locality.GetLbEndpoints()[0].GetEndpoint().GetAddress().GetSocketAddress().GetAddress() != "10.1.0.1" {
		t.Errorf("sent: %v", locality)
	}
}

// A proxy that waits for an unknown cluster's endpoints is told that there are
// none.
func TestEmpty(t *testing.T) {
	t.Parallel()
	r, err := endpoint.Generator{}.Empty("outbound|1||nowhere")
	if err != nil {
		t.Fatal(err)
	}
	s, err := xdstest.NewSimulation([]*resource.Resource{r})
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Assignment("outbound|1||nowhere"); got == nil || len(got.GetEndpoints()) > 0 {
		t.Errorf("answer: %v", got)
	}
}

package cluster_test

import (
	"slices"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/envoy/envoytest"
	"github.com/portolan-mesh/portolan/xds/envoy/upstream"
	"github.com/portolan-mesh/portolan/xds/names"
	"github.com/portolan-mesh/portolan/xds/simulate"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

var captured = xdstest.Node{Interception: discovery.InterceptionRedirect}

// served is a service that the workload at 10.0.0.1 serves.
const served = `{hosts: [me.example.com], resolution: STATIC, endpoints: [{address: 10.0.0.1}], ports: [
	{number: 80, name: http, protocol: HTTP, targetPort: 8080}, {number: 81, name: grpc, protocol: GRPC}, {number: 82, name: plain}, {number: 83, name: tcp, protocol: TCP}]}`

func TestInboundClusters(t *testing.T) {
	t.Parallel()
	service := xdstest.Object("ServiceEntry", "me", served)
	ingress := xdstest.Object("Sidecar", "s", `{ingress: [{port: {number: 9090, protocol: HTTP, name: http}},
		{port: {number: 9091, protocol: HTTP, name: there}, defaultEndpoint: '0.0.0.0:99'}, {port: {number: 9092, protocol: HTTP, name: socket}, defaultEndpoint: 'unix:///run/app.sock'}]}`)
	inbound := func(s *simulate.Proxy) []string {
		return slices.DeleteFunc(s.Clusters(), func(name string) bool {
			ref, ok := names.ParseCluster(name)
			return ok && ref.Direction != names.Inbound || !ok && name != "InboundPassthroughCluster"
		})
	}
	for _, tt := range []struct {
		name   string
		node   xdstest.Node
		config string
		mesh   []string
		want   []string
		// to lists the endpoints of the clusters that have any.
		to map[string][]string
	}{
		{name: "of the workload's own ports", node: captured, mesh: []string{service},
			want: []string{"InboundPassthroughCluster", "inbound|8080||", "inbound|81||", "inbound|82||", "inbound|83||"}},
		{name: "a proxy that captures nothing has none of services", mesh: []string{service}, want: []string{}},
		{name: "to the loopback address", node: captured, mesh: []string{service}, config: "inboundTrafficPolicy: {mode: LOCALHOST}",
			want: []string{"InboundPassthroughCluster", "inbound|8080||", "inbound|81||", "inbound|82||", "inbound|83||"},
			to:   map[string][]string{"inbound|8080||": {"127.0.0.1:8080"}, "inbound|81||": {"127.0.0.1:81"}, "inbound|82||": {"127.0.0.1:82"}, "inbound|83||": {"127.0.0.1:83"}}},
		{name: "with IPv6 only", node: xdstest.Node{Interception: discovery.InterceptionRedirect, IP: "fd00::1"}, config: "inboundTrafficPolicy: {mode: LOCALHOST}",
			mesh: []string{xdstest.Object("ServiceEntry", "me", "{hosts: [me.example.com], resolution: STATIC, endpoints: [{address: 'fd00::1'}], ports: [{number: 80, name: tcp, protocol: TCP}]}")},
			want: []string{"InboundPassthroughCluster", "inbound|80||"}, to: map[string][]string{"inbound|80||": {"::1:80"}}},
		{name: "of ingress listeners instead", node: captured, mesh: []string{service, ingress},
			want: []string{"InboundPassthroughCluster", "inbound|9090||", "inbound|9091||", "inbound|9092||"},
			to:   map[string][]string{"inbound|9091||": {"10.0.0.1:99"}, "inbound|9092||": {"/run/app.sock"}}},
		{name: "of ingress listeners without capture", mesh: []string{service, ingress},
			want: []string{"inbound|9090||", "inbound|9091||", "inbound|9092||"},
			to:   map[string][]string{"inbound|9090||": {"127.0.0.1:9090"}, "inbound|9091||": {"10.0.0.1:99"}, "inbound|9092||": {"/run/app.sock"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := xdstest.NewWorld(t, tt.mesh...)
			if tt.config != "" {
				w.SetMesh(tt.config)
			}
			s := w.Simulate(tt.node)
			if d := cmp.Diff(tt.want, inbound(s)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			for _, name := range tt.want {
				c := s.Cluster(name)
				want, fixed := tt.to[name]
				if got := s.EndpointsOf(name); !slices.Equal(got, want) {
					t.Errorf("%s leads to %v, want %v", name, got, want)
				}
				// Connections to the original destination must not be redirected again.
				if original := envoytest.ClusterTypeOf(c) == upstream.OriginalDst; original == fixed || original != (c.GetUpstreamBindConfig() != nil) {
					t.Errorf("%s: to the original destination: %v; from an address of its own: %v", name, original, c.GetUpstreamBindConfig())
				}
			}
		})
	}
}

func TestInboundPolicy(t *testing.T) {
	t.Parallel()
	service := xdstest.Object("ServiceEntry", "me", served)
	rule := xdstest.Object("DestinationRule", "me", "{host: me.example.com, trafficPolicy: {loadBalancer: {simple: RANDOM}, connectionPool: {tcp: {maxConnections: 7}}}}")
	tests := []struct {
		name, cluster string
		mesh          []string
		check         func(*clusterv3.Cluster) any
		want          any
	}{
		{name: "the rule of the service", cluster: "inbound|8080||", mesh: []string{service, rule}, check: maxConnections, want: uint32(7)},
		{name: "and nothing else of it", cluster: "inbound|8080||", mesh: []string{service, rule}, check: policy, want: clusterv3.Cluster_CLUSTER_PROVIDED},
		{name: "the Sidecar's", cluster: "inbound|8080||", check: maxConnections, want: uint32(8), mesh: []string{service, rule,
			xdstest.Object("Sidecar", "s", "{inboundConnectionPool: {tcp: {maxConnections: 8}}}")}},
		{name: "the ingress listener's", cluster: "inbound|9090||", check: maxConnections, want: uint32(9), mesh: []string{service, rule,
			xdstest.Object("Sidecar", "s", "{inboundConnectionPool: {tcp: {maxConnections: 8}}, ingress: [{port: {number: 9090, protocol: HTTP, name: http}, connectionPool: {tcp: {maxConnections: 9}}}]}")}},
		{name: "HTTP", cluster: "inbound|8080||", mesh: []string{service}, check: protocol, want: "none"},
		{name: "HTTP/2", cluster: "inbound|81||", mesh: []string{service}, check: protocol, want: "http2"},
		{name: "what the client speaks", cluster: "inbound|82||", mesh: []string{service}, check: protocol, want: "downstream"},
		{name: "and of what is passed", cluster: "InboundPassthroughCluster", mesh: []string{service}, check: protocol, want: "downstream"},
		{name: "outbound, too", cluster: "outbound|82||me.example.com", mesh: []string{service}, check: protocol, want: "downstream"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := tt.check(simulated(t, captured, tt.mesh...).Cluster(tt.cluster)); got != tt.want {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
}

// TestInboundMetadata: the metadata lists the services of a port of the workload.
func TestInboundMetadata(t *testing.T) {
	t.Parallel()
	s := simulated(t, captured, xdstest.Object("ServiceEntry", "me", served),
		xdstest.Object("ServiceEntry", "too", "{hosts: [too.example.com], resolution: STATIC, endpoints: [{address: 10.0.0.1}], ports: [{number: 70, name: http, protocol: HTTP, targetPort: 8080}]}"))
	var hosts []string
	for _, v := range s.Cluster("inbound|8080||").GetMetadata().GetFilterMetadata()["istio"].GetFields()["services"].GetListValue().GetValues() {
		hosts = append(hosts, v.GetStructValue().GetFields()["host"].GetStringValue())
	}
	if d := cmp.Diff([]string{"me.example.com", "too.example.com"}, hosts); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

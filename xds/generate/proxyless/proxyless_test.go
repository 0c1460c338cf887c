package proxyless_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/generate/proxyless"
	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

var client = xdstest.Node{Type: discovery.Proxyless}

// web has two ports, and a UDP port that no client can call.
var web = xdstest.Object("ServiceEntry", "web", `{hosts: [web.example.com], resolution: STATIC,
	ports: [{number: 80, name: grpc, protocol: GRPC}, {number: 81, name: tcp, protocol: TCP}, {number: 53, name: dns, protocol: UDP}],
	endpoints: [{address: 10.1.0.1}]}`)

func object(kind, name, spec string) string { return xdstest.Object(kind, name, spec) }

// built returns the resources of a generator by name, as messages of type M.
func built[M proto.Message](t *testing.T, g generate.Generator, n xdstest.Node, documents ...string) map[string]M {
	t.Helper()
	out := map[string]M{}
	for _, r := range xdstest.NewWorld(t, documents...).Build(n, g) {
		out[r.Name] = message[M](t, r)
	}
	return out
}

// message decodes a resource, which must be valid.
func message[M proto.Message](t *testing.T, r *resource.Resource) M {
	t.Helper()
	m, err := r.Body.UnmarshalNew()
	if err != nil {
		t.Fatal(err)
	}
	if v, ok := m.(interface{ ValidateAll() error }); ok && v.ValidateAll() != nil {
		t.Errorf("%s is not valid: %v", r.Name, v.ValidateAll())
	}
	out, ok := m.(M)
	if !ok {
		t.Fatalf("%s is a %T", r.Name, m)
	}
	return out
}

func empty[M proto.Message](t *testing.T, g generate.Emptier, name string) M {
	t.Helper()
	r, err := generate.Empty(g, name)
	if err != nil || r == nil || r.Name != name {
		t.Fatalf("the answer to %s is %v, %v", name, r, err)
	}
	return message[M](t, r)
}

func expect(t *testing.T, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func manager(t *testing.T, l *listenerv3.Listener) *hcmv3.HttpConnectionManager {
	t.Helper()
	out := &hcmv3.HttpConnectionManager{}
	if err := l.GetApiListener().GetApiListener().UnmarshalTo(out); err != nil {
		t.Fatal(err)
	}
	return out
}

// A client has a listener for each port that it may call. The listener names its routes.
func TestClientListeners(t *testing.T) {
	t.Parallel()
	hidden := object("ServiceEntry", "shop/hidden", "{hosts: [hidden.example.com], exportTo: ['.'], resolution: STATIC, ports: [{number: 80, name: grpc, protocol: GRPC}]}")
	got := map[string]string{}
	for name, l := range built[*listenerv3.Listener](t, proxyless.Listeners{}, client, web, hidden) {
		m := manager(t, l)
		got[name] = m.GetRds().GetRouteConfigName()
		if filters := m.GetHttpFilters(); len(filters) != 2 || filters[0].GetName() != "envoy.filters.http.fault" || filters[1].GetName() != "envoy.filters.http.router" || m.GetRds().GetConfigSource().GetAds() == nil {
			t.Errorf("%s: %v", name, m)
		}
	}
	expect(t, map[string]string{
		"web.example.com:80": "outbound|80||web.example.com", "web.example.com:81": "outbound|81||web.example.com",
	}, got)
}

// Services that the Sidecar does not import have no listener, and so are no targets.
func TestClientListenersOfARestrictedScope(t *testing.T) {
	t.Parallel()
	other := strings.NewReplacer("name: web", "name: other", "web.example", "other.example").Replace(web)
	scope := object("Sidecar", "s", "{egress: [{hosts: ['*/web.example.com'], port: {number: 80, protocol: HTTP, name: http}}, {hosts: ['*/other.example.com']}]}")
	var got []string
	for name := range built[*listenerv3.Listener](t, proxyless.Listeners{}, client, web, other, scope) {
		got = append(got, name)
	}
	expect(t, []string{"other.example.com:81", "web.example.com:80"}, sorted(got))
}

func TestEmptyListeners(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"nowhere.example.com:80", "nowhere"} {
		expectNowhere(t, manager(t, empty[*listenerv3.Listener](t, proxyless.Listeners{}, name)).GetRouteConfig())
	}
	if r, err := generate.Empty(proxyless.Listeners{}, "xds.istio.io/grpc/lds/inbound/somewhere"); r != nil || err != nil {
		t.Errorf("a server without an address: %v, %v", r, err)
	}
}

// A server accepts all calls at the address that it asks for, as it wrote it.
func TestServerListeners(t *testing.T) {
	t.Parallel()
	want := map[string]string{"0.0.0.0:9001": "0.0.0.0:9001", "[::]:9001": ":::9001", "127.0.0.1:1": "127.0.0.1:1"}
	for name, l := range built[*listenerv3.Listener](t, proxyless.Servers{}, server("0.0.0.0:9001", "[::]:9001", "127.0.0.1:1", "somewhere")) {
		at := strings.TrimPrefix(name, inbound)
		address := l.GetAddress().GetSocketAddress()
		expect(t, want[at], fmt.Sprintf("%s:%d", address.GetAddress(), address.GetPortValue()))
		delete(want, at)
		if m := serverManager(t, l); m.GetRouteConfig().GetVirtualHosts()[0].GetRoutes()[0].GetNonForwardingAction() == nil {
			t.Errorf("%s: %v", at, m)
		}
	}
	if len(want) > 0 {
		t.Errorf("no listeners at %v", want)
	}
}

const inbound = "xds.istio.io/grpc/lds/inbound/"

// server is a gRPC server that has asked for the listeners of some addresses.
func server(at ...string) xdstest.Node {
	n := xdstest.Node{Type: discovery.Proxyless, Certified: true}
	for _, address := range at {
		n.Listeners = append(n.Listeners, inbound+address)
	}
	return n
}

func serverManager(t *testing.T, l *listenerv3.Listener) *hcmv3.HttpConnectionManager {
	t.Helper()
	m := &hcmv3.HttpConnectionManager{}
	if err := l.GetFilterChains()[0].GetFilters()[0].GetTypedConfig().UnmarshalTo(m); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestClusters(t *testing.T) {
	t.Parallel()
	const name = "outbound|80||web.example.com"
	rule := func(policy string) string {
		return object("DestinationRule", "web", "{host: web.example.com, trafficPolicy: "+policy+"}")
	}
	service := func(resolution, endpoints string) string {
		return object("ServiceEntry", "web", "{hosts: [web.example.com], resolution: "+resolution+
			", ports: [{number: 80, name: grpc, protocol: GRPC}], endpoints: ["+endpoints+"]}")
	}
	balancer := func(c *clusterv3.Cluster) string {
		var nested []string
		for _, p := range c.GetLoadBalancingPolicy().GetPolicies() {
			nested = append(nested, p.GetTypedExtensionConfig().GetName())
		}
		return strings.Join(append(nested, c.GetLbPolicy().String()), " or ")
	}
	source := func(c *clusterv3.Cluster) string {
		if c.GetType() == clusterv3.Cluster_EDS {
			return "EDS " + c.GetEdsClusterConfig().GetServiceName()
		}
		at := c.GetLoadAssignment().GetEndpoints()[0].GetLbEndpoints()[0].GetEndpoint().GetAddress().GetSocketAddress()
		return fmt.Sprintf("%s %s:%d of %d", c.GetType(), at.GetAddress(), at.GetPortValue(), len(c.GetLoadAssignment().GetEndpoints()))
	}
	ring := func(c *clusterv3.Cluster) string {
		return fmt.Sprint(c.GetRingHashLbConfig().GetMinimumRingSize().GetValue())
	}
	limit := func(c *clusterv3.Cluster) string {
		return fmt.Sprint(c.GetCircuitBreakers().GetThresholds()[0].GetMaxRequests().GetValue())
	}
	for _, tc := range []struct {
		name      string
		documents []string
		look      func(*clusterv3.Cluster) string
		want      string
	}{
		{"endpoints are pushed", []string{web}, source, "EDS " + name},
		{"a service without endpoints of its own", []string{service("NONE", "")}, source, "EDS " + name},
		{"one name is resolved", []string{service("DNS", "{address: a.example.org}, {address: b.example.org, locality: eu}")}, source, "LOGICAL_DNS a.example.org:80 of 1"},
		{"the host itself", []string{service("DNS_ROUND_ROBIN", "")}, source, "LOGICAL_DNS web.example.com:80 of 1"},
		{"PASSTHROUGH", []string{web, rule("{loadBalancer: {simple: PASSTHROUGH}}")}, source, "EDS " + name},
		{"no policy", []string{web}, balancer, "ROUND_ROBIN"},
		{"RANDOM", []string{web, rule("{loadBalancer: {simple: RANDOM}}")}, balancer, "ROUND_ROBIN"},
		{"LEAST_REQUEST", []string{web, rule("{loadBalancer: {simple: LEAST_REQUEST}}")}, balancer, "envoy.load_balancing_policies.wrr_locality or ROUND_ROBIN"},
		{"consistent hash", []string{web, rule("{loadBalancer: {consistentHash: {httpHeaderName: x}}}")}, balancer, "RING_HASH"},
		{"maglev", []string{web, rule("{loadBalancer: {consistentHash: {httpHeaderName: x, maglev: {}}}}")}, balancer, "RING_HASH"},
		{"a ring of a size", []string{web, rule("{loadBalancer: {consistentHash: {httpHeaderName: x, ringHash: {minimumRingSize: 64}}}}")}, ring, "64"},
		{"no limit", []string{web}, limit, "4294967295"},
		{"a limit", []string{web, rule("{connectionPool: {http: {http2MaxRequests: 7}}}")}, limit, "7"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := built[*clusterv3.Cluster](t, proxyless.Clusters{}, client, tc.documents...)[name]
			if c == nil {
				t.Fatal("there is no cluster")
			}
			expect(t, tc.want, tc.look(c))
		})
	}
	expect(t, "EDS BlackHoleCluster", source(empty[*clusterv3.Cluster](t, proxyless.Clusters{}, "BlackHoleCluster")))
}

// gRPC refuses an assignment that repeats an address or a locality, and ignores a
// locality without a weight.
func TestEndpoints(t *testing.T) {
	t.Parallel()
	service := object("ServiceEntry", "web", `{hosts: [web.example.com], resolution: STATIC, ports: [{number: 80, name: grpc, protocol: GRPC}], endpoints: [
		{address: 10.1.0.1, weight: 3}, {address: 10.1.0.1, locality: eu}, {address: 'unix:///socket'}, {address: 10.1.0.2, locality: eu/a},
		{address: 10.1.0.3, locality: eu/a/}, {address: 10.1.0.3, ports: {grpc: 8080}}, {address: 'fd00::1', locality: us}]}`)
	var got []string
	for _, l := range built[*endpointv3.ClusterLoadAssignment](t, proxyless.Endpoints{}, client, service)["outbound|80||web.example.com"].GetEndpoints() {
		line := fmt.Sprintf("%s/%s %d:", l.GetLocality().GetRegion(), l.GetLocality().GetZone(), l.GetLoadBalancingWeight().GetValue())
		for _, e := range l.GetLbEndpoints() {
			at := e.GetEndpoint().GetAddress().GetSocketAddress()
			line += fmt.Sprintf(" %s:%d", at.GetAddress(), at.GetPortValue())
		}
		got = append(got, line)
	}
	expect(t, []string{"/ 4: 10.1.0.1:80 10.1.0.3:8080", "eu/a 2: 10.1.0.2:80 10.1.0.3:80", "us/ 1: fd00::1:80"}, got)
	if l := empty[*endpointv3.ClusterLoadAssignment](t, proxyless.Endpoints{}, "nowhere"); len(l.GetEndpoints()) > 0 {
		t.Errorf("nowhere has endpoints: %v", l)
	}
}

func TestEmptyRoutes(t *testing.T) {
	t.Parallel()
	expectNowhere(t, empty[*routev3.RouteConfiguration](t, proxyless.Routes{}, "nowhere"))
}

// expectNowhere checks that all calls of the routes fail.
func expectNowhere(t *testing.T, c *routev3.RouteConfiguration) {
	t.Helper()
	hosts := c.GetVirtualHosts()
	if len(hosts) != 1 || !slices.Equal(hosts[0].GetDomains(), []string{"*"}) || len(hosts[0].GetRoutes()) != 1 || text(hosts[0].GetRoutes()[0]) != "/* -> nowhere" {
		t.Errorf("it leads somewhere: %v", c)
	}
}

// A client needs time to resolve a host name, but none for endpoints that it gets.
func TestWhatResolves(t *testing.T) {
	t.Parallel()
	named := object("ServiceEntry", "named", `{hosts: [named.example.com], resolution: DNS, ports: [{number: 80, name: grpc, protocol: GRPC}],
		endpoints: [{address: a.example.org}]}`)
	got := map[string]bool{}
	for _, r := range xdstest.NewWorld(t, web, named).Build(client, proxyless.Clusters{}) {
		got[r.Name] = r.Resolves()
	}
	expect(t, map[string]bool{
		"outbound|80||web.example.com": false, "outbound|81||web.example.com": false, "outbound|80||named.example.com": true,
	}, got)
}

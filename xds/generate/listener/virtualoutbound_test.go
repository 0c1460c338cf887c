package listener_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/delivery/protocoltest"
	"github.com/portolan-mesh/portolan/xds/envoy/envoytest"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/generate/listener"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/simulate"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// captured is a proxy to which the traffic of its workload is redirected.
var captured = xdstest.Node{Interception: discovery.InterceptionRedirect}

// at writes a service with one port at the given addresses; without any it has none.
func at(name, port string, addresses ...string) string {
	return xdstest.Object("ServiceEntry", name, fmt.Sprintf(
		"{hosts: [%s.example.com], resolution: STATIC, ports: [{number: %s}], addresses: [%s]}", name, port, strings.Join(addresses, ", ")))
}

const (
	tcp5432   = "5432, name: tcp, protocol: TCP"
	plain5432 = "5432, name: plain"
	http5432  = "5432, name: http, protocol: HTTP"
)

func TestCapturedListeners(t *testing.T) {
	t.Parallel()
	sidecar := func(egress string) string { return xdstest.Object("Sidecar", "s", "{egress: ["+egress+"]}") }
	dual, v6 := captured, captured
	dual.MoreIPs, v6.IP = []string{"fd00::1"}, "fd00::1"
	tests := []struct {
		name   string
		node   *xdstest.Node
		mesh   []string
		assign map[string]string
		want   []string // beside the virtual ones
	}{
		{name: "none without services"},
		{name: "HTTP is shared at every address", mesh: []string{at("a", http5432, "10.9.0.1"), at("b", http5432)}, want: []string{"0.0.0.0_5432"}},
		{name: "TCP is at the service's own", mesh: []string{at("a", tcp5432, "10.9.0.1", "10.9.0.2"), at("b", tcp5432, "10.9.0.3")},
			want: []string{"10.9.0.1_5432", "10.9.0.2_5432", "10.9.0.3_5432"}},
		{name: "and what declares nothing", mesh: []string{at("a", plain5432, "10.9.0.1")}, want: []string{"10.9.0.1_5432"}},
		{name: "TCP without an address is at every one", mesh: []string{at("a", tcp5432)}, want: []string{"0.0.0.0_5432"}},
		{name: "as TCP at a range of them is", mesh: []string{at("a", tcp5432, "10.9.0.0/24")}, want: []string{"0.0.0.0_5432"}},
		{name: "a range of one is an address", mesh: []string{at("a", tcp5432, "10.9.0.1/32")}, want: []string{"10.9.0.1_5432"}},
		{name: "an address that was given", mesh: []string{at("a", tcp5432), at("b", tcp5432)},
			assign: map[string]string{"a": "240.240.0.1"}, want: []string{"0.0.0.0_5432", "240.240.0.1_5432"}},
		{name: "both families", node: &dual, mesh: []string{at("a", tcp5432), at("b", http5432)}, assign: map[string]string{"a": "240.240.0.1"},
			want: []string{"0.0.0.0_5432", "2001:2::f0f0:1_5432", "240.240.0.1_5432"}},
		{name: "IPv6 only", node: &v6, mesh: []string{at("a", tcp5432), at("b", http5432)}, assign: map[string]string{"a": "240.240.0.1"},
			want: []string{"2001:2::f0f0:1_5432", "::_5432"}},
		{name: "one spelling of an address", mesh: []string{at("a", tcp5432, "'fd00:0::1'"), at("b", tcp5432, "'fd00::1'")}, want: []string{"fd00::1_5432"}},
		{name: "no listener for UDP", mesh: []string{at("a", "53, name: dns, protocol: UDP", "10.9.0.1")}},
		{name: "none in the way of the proxy's own ports", mesh: []string{
			at("a", "15001, name: http, protocol: HTTP"), at("b", "15006, name: tcp, protocol: TCP"), at("c", "15021, name: http, protocol: HTTP"), at("d", "15090, name: tcp, protocol: TCP")}},
		{name: "nor of those unseen", mesh: []string{at("a", tcp5432), at("b", http5432), sidecar("{hosts: ['other/*']}")}},
		{name: "an egress port for HTTP", mesh: []string{at("a", http5432), at("b", "81, name: http, protocol: HTTP"),
			sidecar("{port: {number: 5432, protocol: HTTP, name: http}, hosts: ['*/*']}")}, want: []string{"0.0.0.0_5432"}},
		{name: "an egress port for TCP", mesh: []string{at("a", tcp5432, "10.9.0.1"), at("b", http5432, "10.9.0.2"), at("c", http5432),
			sidecar("{port: {number: 5432, protocol: TCP, name: tcp}, hosts: ['*/*']}")}, want: []string{"0.0.0.0_5432", "10.9.0.1_5432", "10.9.0.2_5432"}},
		{name: "an egress port and an address", mesh: []string{at("a", tcp5432, "10.9.0.1"),
			sidecar("{port: {number: 5432, protocol: TCP, name: tcp}, bind: 10.7.0.1, hosts: ['*/*']}")}, want: []string{"10.7.0.1_5432"}},
		{name: "an egress port that captures nothing", mesh: []string{at("a", tcp5432, "10.9.0.1"),
			sidecar("{port: {number: 5432, protocol: TCP, name: tcp}, captureMode: NONE, hosts: ['*/*']}")}, want: []string{"127.0.0.1_5432"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := xdstest.NewWorld(t, tt.mesh...)
			for name, ip := range tt.assign {
				w.Assign("default", name+".example.com", ip)
			}
			node := captured
			if tt.node != nil {
				node = *tt.node
			}
			want := append(slices.Clone(tt.want), "virtualInbound", "virtualOutbound")
			if d := cmp.Diff(want, w.Simulate(node).Listeners()); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// TestCapturedConnections: where a client's connection goes, whatever its original
// destination.
func TestCapturedConnections(t *testing.T) {
	t.Parallel()
	const a, b = "outbound|5432||a.example.com", "outbound|5432||b.example.com"
	tcp := func(address string) simulate.Request {
		return simulate.Request{Address: address, Port: 5432, Protocol: simulate.TCP}
	}
	http := func(address, host string) simulate.Request {
		return simulate.Request{Address: address, Port: 5432, Host: host}
	}
	registryOnly := xdstest.Object("Sidecar", "s", "{egress: [{hosts: ['*/*']}], outboundTrafficPolicy: {mode: REGISTRY_ONLY}}")
	tests := []struct {
		name    string
		mesh    []string
		request simulate.Request
		want    string
	}{
		{name: "nothing is known of it", request: tcp("10.1.1.1"), want: "PassthroughCluster"},
		{name: "and nothing else may pass", request: tcp("10.1.1.1"), mesh: []string{registryOnly}, want: "BlackHoleCluster"},
		{name: "the port of the listener itself", request: simulate.Request{Address: "10.1.1.1", Port: 15001, Protocol: simulate.TCP}, want: "BlackHoleCluster"},
		{name: "TCP to an address", request: tcp("10.9.0.2"), mesh: []string{at("a", tcp5432, "10.9.0.1"), at("b", tcp5432, "10.9.0.2")}, want: b},
		{name: "another address", request: tcp("10.9.0.9"), mesh: []string{at("a", tcp5432, "10.9.0.1")}, want: "PassthroughCluster"},
		{name: "two services at one address: the oldest", request: tcp("10.9.0.1"), mesh: []string{at("b", tcp5432, "10.9.0.1"), at("a", tcp5432, "10.9.0.1")}, want: b},
		{name: "two without an address: the oldest", request: tcp("10.1.1.1"), mesh: []string{at("b", tcp5432), at("a", tcp5432)}, want: b},
		{name: "HTTP to one without an address", request: http("10.1.1.1", "b.example.com"), mesh: []string{at("b", tcp5432)}, want: b},
		{name: "an address beside one without", request: tcp("10.9.0.1"), mesh: []string{at("b", tcp5432), at("a", tcp5432, "10.9.0.1")}, want: a},
		{name: "a range", request: tcp("10.9.0.77"), mesh: []string{at("b", tcp5432), at("a", tcp5432, "10.9.0.0/24")}, want: a},
		{name: "outside of it", request: tcp("10.9.1.77"), mesh: []string{at("b", tcp5432), at("a", tcp5432, "10.9.0.0/24")}, want: b},
		{name: "outside of it, nobody's", request: tcp("10.9.1.77"), mesh: []string{at("a", tcp5432, "10.9.0.0/24")}, want: "PassthroughCluster"},
		{name: "a narrower range", request: tcp("10.9.0.77"), mesh: []string{at("b", tcp5432, "10.9.0.0/16"), at("a", tcp5432, "10.9.0.0/24")}, want: a},
		{name: "the same range: the oldest", request: tcp("10.9.0.77"), mesh: []string{at("b", tcp5432, "10.9.0.0/24"), at("a", tcp5432, "10.9.0.1/24")}, want: b},
		{name: "HTTP by its host, at any address", request: http("10.1.1.1", "b.example.com"), mesh: []string{at("a", http5432, "10.9.0.1"), at("b", http5432, "10.9.0.2")}, want: b},
		{name: "HTTP by its address", request: http("10.9.0.2", "10.9.0.2:5432"), mesh: []string{at("a", http5432, "10.9.0.1"), at("b", http5432, "10.9.0.2")}, want: b},
		{name: "HTTP to an unknown host", request: http("10.1.1.1", "x.example.org"), mesh: []string{at("a", http5432)}, want: "PassthroughCluster"},
		{name: "what is not HTTP on a port of HTTP", request: tcp("10.1.1.1"), mesh: []string{at("a", http5432)}, want: "PassthroughCluster"},
		{name: "and may not pass", request: tcp("10.1.1.1"), mesh: []string{at("a", http5432), registryOnly}, want: "BlackHoleCluster"},
		{name: "HTTP and TCP without an address on one port: HTTP", request: http("10.1.1.1", "a.example.com"), mesh: []string{at("a", http5432), at("b", tcp5432)}, want: a},
		{name: "HTTP and TCP without an address on one port: TCP", request: tcp("10.1.1.1"), mesh: []string{at("a", http5432), at("b", tcp5432)}, want: b},
		{name: "HTTP to the address of a TCP service", request: http("10.9.0.2", "a.example.com"), mesh: []string{at("a", http5432), at("b", tcp5432, "10.9.0.2")}, want: b},
		{name: "TCP found on a port that declares nothing", request: tcp("10.9.0.1"), mesh: []string{at("a", plain5432, "10.9.0.1")}, want: a},
		{name: "HTTP found there, whatever its host", request: http("10.9.0.1", "x.example.org"), mesh: []string{at("a", plain5432, "10.9.0.1"), at("b", http5432)}, want: a},
		{name: "HTTP found at every address, by its host", request: http("10.1.1.1", "b.example.com"), mesh: []string{at("a", tcp5432), at("b", plain5432)}, want: b},
		{name: "and what is not, as it is the oldest's", request: tcp("10.1.1.1"), mesh: []string{at("a", tcp5432), at("b", plain5432)}, want: a},
		{name: "HTTP by the host of one that declares nothing", request: http("10.1.1.1", "a.example.com"), mesh: []string{at("a", plain5432, "10.9.0.1"), at("b", http5432)}, want: a},
		{name: "HTTP found in a range", request: http("10.9.0.77", "x.example.org"), mesh: []string{at("b", http5432), at("a", plain5432, "10.9.0.0/24")}, want: a},
		{name: "a route of what was found to be HTTP", request: http("10.9.0.1", "x.example.org"), want: "418", mesh: []string{at("a", plain5432, "10.9.0.1"),
			xdstest.Object("VirtualService", "a", "{hosts: [a.example.com], http: [{directResponse: {status: 418}}]}")}},
		{name: "two that declare nothing at one address: the oldest", request: http("10.9.0.1", "a.example.com"), mesh: []string{at("b", plain5432, "10.9.0.1"), at("a", plain5432, "10.9.0.1")}, want: b},
		{name: "TCP on an undeclared port of a range", request: tcp("10.9.0.77"), mesh: []string{at("b", http5432), at("a", plain5432, "10.9.0.0/24")}, want: a},
		{name: "an egress port for TCP: at the address", request: http("10.9.0.1", "x"), want: a, mesh: []string{at("a", http5432, "10.9.0.1"), at("b", tcp5432),
			xdstest.Object("Sidecar", "s", "{egress: [{port: {number: 5432, protocol: TCP, name: tcp}, hosts: ['*/*']}]}")}},
		{name: "an egress port for TCP: elsewhere", request: tcp("10.1.1.1"), want: b, mesh: []string{at("a", http5432, "10.9.0.1"), at("b", http5432), at("c", tcp5432),
			xdstest.Object("Sidecar", "s", "{egress: [{port: {number: 5432, protocol: TCP, name: tcp}, hosts: ['*/*']}]}")}},
		{name: "an egress port for TCP is closed to the other listeners", request: tcp("10.9.0.2"), want: "PassthroughCluster", mesh: []string{at("a", tcp5432, "10.9.0.1"), at("b", tcp5432, "10.9.0.2"),
			xdstest.Object("Sidecar", "s", "{egress: [{port: {number: 5432, protocol: TCP, name: tcp}, hosts: ['*/a.example.com']}, {hosts: ['*/*']}]}")}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := xdstest.NewWorld(t, tt.mesh...).Simulate(captured).Run(tt.request).String(); got != tt.want && got != tt.want+" (missing)" {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

// TestGivenAddressesKeepServicesApart: TCP services without their own address do not
// collide on their port.
func TestGivenAddressesKeepServicesApart(t *testing.T) {
	t.Parallel()
	s := assigned(t).Simulate(captured)
	for address, want := range map[string]string{
		"240.240.0.1": "outbound|5432||z.example.com",
		"240.240.0.2": "outbound|5432||a.example.com",
		"240.240.0.9": "PassthroughCluster",
	} {
		if got := s.Run(simulate.Request{Address: address, Port: 5432, Protocol: simulate.TCP}).String(); got != want {
			t.Errorf("%s:5432: got %s, want %s", address, got, want)
		}
	}
	if got := s.Run(simulate.Request{Address: "240.240.0.3", Host: "web.example.com"}).String(); got != "outbound|80||web.example.com" {
		t.Errorf("web at its address: %s", got)
	}
}

// TestVirtualListeners: the listeners to which the machine's rules redirect, in every
// mode.
func TestVirtualListeners(t *testing.T) {
	t.Parallel()
	w := xdstest.NewWorld(t)
	for mode, transparent := range map[discovery.InterceptionMode]bool{discovery.InterceptionRedirect: false, discovery.InterceptionTproxy: true} {
		s := w.Simulate(xdstest.Node{Interception: mode})
		for name, port := range map[string]uint32{"virtualOutbound": 15001, "virtualInbound": 15006} {
			l := s.Listener(name)
			if l.GetAddress().GetSocketAddress().GetPortValue() != port || l.GetTransparent().GetValue() != transparent || l.GetBindToPort() != nil {
				t.Errorf("%s, mode %s: %v", name, mode, l)
			}
		}
	}
	w.SetMesh("{proxyListenPort: 16001, proxyInboundListenPort: 16006}")
	if s := w.Simulate(captured); s.Listener("virtualOutbound").GetAddress().GetSocketAddress().GetPortValue() != 16001 ||
		s.Listener("virtualInbound").GetAddress().GetSocketAddress().GetPortValue() != 16006 {
		t.Error("the mesh's ports are not taken")
	}
}

// TestCapturedRefs: listeners name the clusters to which they send, so a cluster is not
// withdrawn too early.
func TestCapturedRefs(t *testing.T) {
	t.Parallel()
	w := xdstest.NewWorld(t, at("a", tcp5432, "10.9.0.1"), at("b", http5432), at("c", tcp5432, "10.9.0.0/24"), at("d", plain5432, "10.9.0.2"))
	got := map[string][]string{}
	for _, r := range w.Build(captured, listener.Generator{}, listener.Inbound{}) {
		got[r.Name] = slices.AppendSeq(slices.Collect(r.EachRef), protocoltest.Children(r))
	}
	want := map[string][]string{
		"0.0.0.0_5432":    {"PassthroughCluster", "outbound|5432||c.example.com", "5432"},
		"10.9.0.1_5432":   {"outbound|5432||a.example.com"},
		"10.9.0.2_5432":   {"outbound|5432||d.example.com", "d.example.com:5432"},
		"virtualInbound":  {"BlackHoleCluster", "InboundPassthroughCluster"},
		"virtualOutbound": {"BlackHoleCluster", "PassthroughCluster"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestFilterChainNames: EnvoyFilters and access logs use these names.
func TestFilterChainNames(t *testing.T) {
	t.Parallel()
	w := xdstest.NewWorld(t, at("b", http5432), xdstest.Object("ServiceEntry", "me", `{hosts: [me.example.com], resolution: STATIC,
		ports: [{number: 80, name: http, protocol: HTTP, targetPort: 8080}], endpoints: [{address: 10.0.0.1}]}`))
	s := w.Simulate(captured)
	want := map[string][]string{
		"0.0.0.0_5432":    {"", "PassthroughFilterChain"},
		"virtualInbound":  {"virtualInbound-blackhole", "virtualInbound-catchall-http", "virtualInbound", "0.0.0.0_8080", ""},
		"virtualOutbound": {"virtualOutbound-blackhole", "virtualOutbound-catchall-tcp", ""},
	}
	got := map[string][]string{}
	for name := range want {
		l := s.Listener(name)
		for _, c := range append(slices.Clone(l.GetFilterChains()), l.GetDefaultFilterChain()) {
			got[name] = append(got[name], c.GetName())
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// sharing writes a service whose ports many services have.
func sharing(i int) string {
	return xdstest.Object("ServiceEntry", fmt.Sprint("s", i), fmt.Sprintf(`{hosts: [s%d.example.com], resolution: STATIC,
		addresses: [10.8.0.%d], ports: [{number: 80, name: http, protocol: HTTP}, {number: 9090, name: tcp, protocol: TCP}]}`, i, i))
}

// TestListenersReadLittle: a listener is built from what it needs, however many services
// there are. It depends on no route.
func TestListenersReadLittle(t *testing.T) {
	t.Parallel()
	var documents []string
	for i := range 100 {
		documents = append(documents, sharing(i))
	}
	w := xdstest.NewWorld(t, documents...)
	before := map[string][]mesh.Dependency{}
	for _, node := range []xdstest.Node{captured, {}} {
		v := w.View(node)
		for name := range (listener.Generator{}).Affected(v, mesh.Diff(nil, w.Context())) {
			recording := v.Recording()
			if _, err := generate.Build(listener.Generator{}, recording, name); err != nil {
				t.Fatal(err)
			}
			before[name] = recording.Dependencies()
			if n := len(recording.Dependencies()); n > 20 {
				t.Errorf("%s is built from %d rows", name, n)
			}
			for _, r := range recording.Dependencies() {
				if table := r.Query.Row.Table; table == mesh.Routes || table == mesh.Destinations {
					t.Errorf("%s depends on routes", name)
				}
			}
		}
	}
	// Another service with the same ports concerns only its own listener and the loopback
	// listener for TCP, for which it may be the oldest.
	w.Apply(sharing(100))
	var concerned []string
	for name, reads := range before {
		v := w.View(captured)
		if strings.HasPrefix(name, "127.") {
			v = w.View(xdstest.Node{})
		}
		if slices.ContainsFunc(reads, func(r mesh.Dependency) bool { return v.Answer(r.Query) != r.Answer }) {
			concerned = append(concerned, name)
		}
	}
	if d := cmp.Diff([]string{"127.0.0.1_9090"}, concerned); d != "" {
		t.Errorf("listeners that a new service concerns (-want +got):\n%s", d)
	}
	if chain := envoytest.TCPProxyOf(w.Simulate(captured).Listener("10.8.0.7_9090").GetFilterChains()[0]); chain.GetCluster() != "outbound|9090||s7.example.com" {
		t.Errorf("s7 at its address: %v", chain)
	}
}

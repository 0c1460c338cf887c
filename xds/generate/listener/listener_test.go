package listener_test

import (
	"slices"
	"strings"
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/envoy/envoytest"
	"github.com/portolan-mesh/portolan/xds/generate/listener"
	"github.com/portolan-mesh/portolan/xds/generate/policy"
	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/simulate"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// service is a ServiceEntry with one port.
func service(name, hostname, port string) string {
	return xdstest.Object("ServiceEntry", name, "{hosts: ["+hostname+"], resolution: STATIC, ports: ["+port+"], endpoints: [{address: 10.1.0.1}]}")
}

var (
	web   = service("web", "web.example.com", "{number: 80, name: http, protocol: HTTP}")
	other = service("other", "other.example.com", "{number: 80, name: http, protocol: HTTP2}")
	older = service("z-older", "z.example.com", "{number: 5432, name: tcp, protocol: TCP}")
	newer = service("a-newer", "a.example.com", "{number: 5432, name: tls, protocol: TLS}")
)

func TestNames(t *testing.T) {
	t.Parallel()
	router := discovery.Router
	gateway := xdstest.Object("Gateway", "gw", `{servers: [
		{port: {number: 80, name: http, protocol: HTTP}, hosts: [a.example.com]}, {port: {number: 80, name: grpc, protocol: GRPC}, hosts: [b.example.com]},
		{port: {number: 81, name: local, protocol: HTTP}, bind: 10.0.0.9, hosts: ['*']}, {port: {number: 9000, name: tcp, protocol: TCP}, hosts: ['*']}]}`)
	tests := []struct {
		name string
		node xdstest.Node
		mesh []string
		want []string
	}{
		{name: "a listener for each port", mesh: []string{web, other, older}, want: []string{"127.0.0.1_5432", "127.0.0.1_80"}},
		{name: "a proxy with IPv6 only", node: xdstest.Node{IP: "fd00::1"}, mesh: []string{web}, want: []string{"::1_80"}},
		{name: "UDP is left out", mesh: []string{service("dns", "dns.example.com", "{number: 53, name: dns, protocol: UDP}")}, want: []string{}},
		{name: "egress ports", want: []string{"127.0.0.1_5432", "127.0.0.7_80"}, mesh: []string{web, older,
			xdstest.Object("Sidecar", "s", "{egress: [{port: {number: 80, protocol: HTTP, name: http}, bind: 127.0.0.7, hosts: ['*/*']}, {hosts: ['*/*']}]}")}},
		{name: "nothing but egress ports", want: []string{"127.0.0.1_80"}, mesh: []string{web, older,
			xdstest.Object("Sidecar", "s", "{egress: [{port: {number: 80, protocol: HTTP, name: http}, hosts: ['*/*']}]}")}},
		{name: "an egress port for TCP that no service has", want: []string{}, mesh: []string{web,
			xdstest.Object("Sidecar", "s", "{egress: [{port: {number: 81, protocol: TCP, name: tcp}, hosts: ['*/*']}]}")}},
		{name: "an egress port for HTTP that no service has", want: []string{}, mesh: []string{web,
			xdstest.Object("Sidecar", "s", "{egress: [{port: {number: 81, protocol: HTTP, name: http}, hosts: ['*/*']}]}")}},
		{name: "an egress port that a service has which is not imported", want: []string{}, mesh: []string{web, other,
			xdstest.Object("Sidecar", "s", "{egress: [{port: {number: 80, protocol: HTTP, name: http}, hosts: ['shop/*']}]}")}},
		{name: "an egress address for all ports", want: []string{"127.0.0.2_5432", "127.0.0.2_80"}, mesh: []string{web, older,
			xdstest.Object("Sidecar", "s", "{egress: [{bind: 127.0.0.2, hosts: ['*/*']}]}")}},
		{name: "sockets, and an HTTP proxy", want: []string{"127.0.0.1_3128", "unix:///b_0", "unix:///h_0"}, mesh: []string{web, older,
			xdstest.Object("Sidecar", "s", `{egress: [{port: {number: 0, protocol: HTTP, name: h}, bind: 'unix:///h', hosts: ['*/*']}, {port: {number: 0, protocol: TCP, name: b}, bind: 'unix:///b', hosts: ['*/z.example.com']},
				{port: {number: 0, protocol: TCP, name: none}, bind: 'unix:///n', hosts: ['*/*']}, {port: {number: 3128, protocol: HTTP_PROXY, name: p}, hosts: ['*/*']}]}`)}},
		{name: "the same where traffic is captured", node: xdstest.Node{Interception: discovery.InterceptionRedirect}, mesh: []string{web, older,
			xdstest.Object("Sidecar", "s", `{egress: [{port: {number: 0, protocol: TCP, name: b}, bind: 'unix:///b', hosts: ['*/z.example.com']}, {port: {number: 3128, protocol: HTTP_PROXY, name: p}, hosts: ['*/*']},
				{port: {number: 3129, protocol: HTTP_PROXY, name: q}, captureMode: NONE, hosts: ['*/*']}]}`)},
			want: []string{"0.0.0.0_3128", "127.0.0.1_3129", "unix:///b_0", "virtualInbound", "virtualOutbound"}},
		{name: "a service that only a route leads to", want: []string{"127.0.0.1_80"}, mesh: []string{web,
			xdstest.Object("ServiceEntry", "shop/high", "{hosts: [high.example.com], resolution: STATIC, ports: [{number: 8080, name: http, protocol: HTTP}]}"),
			xdstest.Object("VirtualService", "v", "{hosts: [web.example.com], http: [{route: [{destination: {host: high.example.com}}]}]}"),
			xdstest.Object("Sidecar", "s", "{egress: [{hosts: ['./*']}]}")}},
		{name: "ingress", want: []string{"10.0.0.1_9090", "127.0.0.5_9091"}, mesh: []string{
			xdstest.Object("Sidecar", "s", "{ingress: [{port: {number: 9090, protocol: HTTP, name: http}}, {port: {number: 9091, protocol: TCP, name: tcp}, bind: 127.0.0.5}]}")}},
		{name: "gateway", node: xdstest.Node{Type: router}, mesh: []string{web, gateway}, want: []string{"0.0.0.0_80", "10.0.0.9_81"}},
		{name: "gateway with IPv6 only", node: xdstest.Node{Type: router, IP: "fd00::1"}, mesh: []string{gateway}, want: []string{"10.0.0.9_81", "::_80"}},
		{name: "a gateway that the workload is not selected by", node: xdstest.Node{Type: router}, want: []string{},
			mesh: []string{xdstest.Object("Gateway", "gw", "{selector: {app: edge}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}]}")}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.want, xdstest.NewWorld(t, tt.mesh...).Simulate(tt.node).Listeners()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestWhereConnectionsGo(t *testing.T) {
	t.Parallel()
	mixed := service("mixed", "mixed.example.com", "{number: 80, name: tcp, protocol: TCP}")
	plain := service("plain", "plain.example.com", "{number: 81, name: plain}")
	ingress := xdstest.Object("Sidecar", "s", "{ingress: [{port: {number: 9090, protocol: HTTP, name: http}}, {port: {number: 9091, protocol: TCP, name: tcp}, defaultEndpoint: '127.0.0.1:99'}]}")
	tests := []struct {
		name    string
		mesh    []string
		request simulate.Request
		want    string
	}{
		{name: "TCP to the service of the port", mesh: []string{older}, request: simulate.Request{Port: 5432, Protocol: simulate.TCP}, want: "outbound|5432||z.example.com"},
		{name: "several on one port: the oldest", mesh: []string{older, newer}, request: simulate.Request{Port: 5432, Protocol: simulate.TCP}, want: "outbound|5432||z.example.com"},
		{name: "a port without a protocol is TCP", mesh: []string{plain}, request: simulate.Request{Port: 81}, want: "outbound|81||plain.example.com"},
		{name: "HTTP and TCP on one port: HTTP", mesh: []string{web, mixed}, request: simulate.Request{Host: "web.example.com"}, want: "outbound|80||web.example.com"},
		{name: "HTTP and TCP on one port: HTTP/2", mesh: []string{web, mixed}, request: simulate.Request{Host: "web.example.com", Protocol: simulate.HTTP2}, want: "outbound|80||web.example.com"},
		{name: "HTTP and TCP on one port: TCP", mesh: []string{web, mixed}, request: simulate.Request{Protocol: simulate.TCP}, want: "outbound|80||mixed.example.com"},
		{name: "an egress port for TCP goes to the oldest that has it", request: simulate.Request{Host: "web.example.com"}, want: "outbound|80||other.example.com", mesh: []string{other, web,
			xdstest.Object("Sidecar", "s", "{egress: [{port: {number: 80, protocol: TCP, name: tcp}, hosts: ['*/*']}]}")}},
		{name: "an egress port sees what it imports", request: simulate.Request{Port: 5432, Protocol: simulate.TCP}, want: "outbound|5432||a.example.com", mesh: []string{older, newer,
			xdstest.Object("Sidecar", "s", "{egress: [{port: {number: 5432, protocol: TCP, name: tcp}, hosts: ['*/a.example.com']}]}")}},
		{name: "a socket leads to the oldest service that it names", request: simulate.Request{Address: "unix:///b", Protocol: simulate.TCP}, want: "outbound|5432||z.example.com", mesh: []string{older, newer,
			xdstest.Object("Sidecar", "s", "{egress: [{port: {number: 0, protocol: TCP, name: b}, bind: 'unix:///b', hosts: ['*/a.example.com', '*/z.example.com']}]}")}},
		{name: "a socket leads to the port without HTTP", request: simulate.Request{Address: "unix:///b", Protocol: simulate.TCP}, want: "outbound|91||two.example.com", mesh: []string{
			service("two", "two.example.com", "{number: 90, name: http, protocol: HTTP}, {number: 91, name: tcp, protocol: TCP}"),
			xdstest.Object("Sidecar", "s", "{egress: [{port: {number: 0, protocol: TCP, name: b}, bind: 'unix:///b', hosts: ['*/two.example.com']}]}")}},
		{name: "HTTP ingress", mesh: []string{ingress}, request: simulate.Request{Address: "10.0.0.1", Port: 9090, Host: "anything"}, want: "inbound|9090||"},
		{name: "TCP ingress", mesh: []string{ingress}, request: simulate.Request{Address: "10.0.0.1", Port: 9091, Protocol: simulate.TCP}, want: "inbound|9091||"},
		{name: "another address", mesh: []string{web}, request: simulate.Request{Address: "10.0.0.1", Host: "web.example.com"}, want: "no listener"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := xdstest.NewWorld(t, tt.mesh...).Simulate(xdstest.Node{}).Run(tt.request).String(); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

// A listener needs its routes before it is used, and its clusters before it is sent.
func TestNeeds(t *testing.T) {
	t.Parallel()
	w := xdstest.NewWorld(t, web, older, xdstest.Object("Gateway", "gw", "{servers: [{port: {number: 8080, name: http, protocol: HTTP}, hosts: ['*']}]}"))
	got := map[string][]resource.Need{}
	for _, n := range []xdstest.Node{{}, {Type: discovery.Router}} {
		for _, r := range w.Build(n, listener.Generator{}) {
			got[r.Name] = r.Needs
		}
	}
	routes := func(name string) []resource.Need {
		return []resource.Need{{TypeURL: resource.RouteType, Name: name, Kind: resource.Warm}}
	}
	want := map[string][]resource.Need{
		"127.0.0.1_80": routes("80"), "0.0.0.0_8080": append(policy.Needs(true, false), routes("http.8080")...),
		"127.0.0.1_5432": {{TypeURL: resource.ClusterType, Name: "outbound|5432||z.example.com", Kind: resource.Traffic}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestAccessLogs(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, config, want string }{
		{name: "none by default"},
		{name: "text", config: "accessLogFile: /dev/stdout", want: "[%START_TIME%]"},
		{name: "a format", config: "{accessLogFile: /dev/stdout, accessLogFormat: 'me %PROTOCOL%'}", want: "me %PROTOCOL%"},
		{name: "JSON", config: "{accessLogFile: /dev/stdout, accessLogEncoding: JSON}", want: "upstream_cluster"},
		{name: "JSON of some fields", config: `{accessLogFile: /dev/stdout, accessLogEncoding: JSON, accessLogFormat: '{"code": "%RESPONSE_CODE%"}'}`, want: "%RESPONSE_CODE%"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := xdstest.NewWorld(t, web)
			w.SetMesh(tt.config)
			l := w.Simulate(xdstest.Node{}).Listener("127.0.0.1_80")
			logs := envoytest.HTTPConnectionManagerOf(l.GetFilterChains()[0]).GetAccessLog()
			if (tt.want == "") != (len(logs) == 0) || len(logs) != len(l.GetAccessLog()) {
				t.Fatalf("%d logs of requests, %d of connections", len(logs), len(l.GetAccessLog()))
			}
			if tt.want != "" && !strings.Contains(string(logs[0].GetTypedConfig().GetValue()), tt.want) {
				t.Errorf("the log is %v", logs[0])
			}
		})
	}
}

// TestStatPrefixes: the stat prefixes of connection managers and TCP proxies.
func TestStatPrefixes(t *testing.T) {
	t.Parallel()
	s := xdstest.NewWorld(t, web, older,
		xdstest.Object("Sidecar", "s", "{ingress: [{port: {number: 9090, protocol: HTTP, name: http}}]}")).Simulate(xdstest.Node{})
	var got []string
	for _, name := range s.Listeners() {
		got = append(got, prefixes(s.Listener(name))...)
	}
	want := []string{"inbound_10.0.0.1_9090;", "outbound|5432||z.example.com", "outbound_127.0.0.1_80;"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TCP connections go through a tunnel if the rule of their service says so.
func TestTunnels(t *testing.T) {
	t.Parallel()
	for policy, want := range map[string]string{
		"{tunnel: {targetHost: t.example.com, targetPort: 9}}":                                                                    "t.example.com:9",
		"{tunnel: {protocol: POST, targetHost: 'fd00::1', targetPort: 9}}":                                                        "[fd00::1]:9 by POST",
		"{tunnel: {targetHost: t.example.com, targetPort: 9}, portLevelSettings: [{port: {number: 5432}, outlierDetection: {}}]}": "t.example.com:9",
		"{outlierDetection: {}}": "",
	} {
		s := xdstest.NewWorld(t, older, xdstest.Object("DestinationRule", "r", "{host: z.example.com, trafficPolicy: "+policy+"}")).Simulate(xdstest.Node{})
		name := s.Listeners()[0]
		tunnel := envoytest.TCPProxyOf(s.Listener(name).GetFilterChains()[0]).GetTunnelingConfig()
		got := tunnel.GetHostname()
		if tunnel.GetUsePost() {
			got += " by POST"
		}
		if got != want {
			t.Errorf("%s: %q, want %q", policy, got, want)
		}
		if r := s.Run(simulate.Request{Protocol: simulate.TCP, Port: 5432}); r.Tunnel != tunnel.GetHostname() {
			t.Errorf("%s: simulated %+v", policy, r)
		}
	}
}

// The mesh's pattern also names the statistics of TCP proxies.
func TestStatPrefixesOfAPattern(t *testing.T) {
	t.Parallel()
	w := xdstest.NewWorld(t, older)
	w.SetMesh("outboundClusterStatName: '%SERVICE%_%SERVICE_PORT_NAME%'")
	s := w.Simulate(xdstest.Node{})
	var got []string
	for _, name := range s.Listeners() {
		got = append(got, prefixes(s.Listener(name))...)
	}
	if diff := cmp.Diff([]string{"z.example.com_tcp"}, got); diff != "" {
		t.Error(diff)
	}
}

func prefixes(l *listenerv3.Listener) []string {
	var out []string
	for _, c := range slices.Concat(l.GetFilterChains(), []*listenerv3.FilterChain{l.GetDefaultFilterChain()}) {
		if prefix := envoytest.HTTPConnectionManagerOf(c).GetStatPrefix() + envoytest.TCPProxyOf(c).GetStatPrefix(); prefix != "" {
			out = append(out, prefix)
		}
	}
	return out
}

package listener_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/envoy/envoytest"
	"github.com/portolan-mesh/portolan/xds/simulate"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// serving writes a service with one port that the workload at 10.0.0.1 serves.
func serving(name, port string) string {
	return xdstest.Object("ServiceEntry", name, fmt.Sprintf(
		"{hosts: [%s.example.com], resolution: STATIC, ports: [{number: %s}], endpoints: [{address: 10.0.0.1}]}", strings.TrimPrefix(name, "shop/"), port))
}

// TestInboundConnections: connections to a workload reach its application, in the
// protocol that the service declares.
func TestInboundConnections(t *testing.T) {
	t.Parallel()
	const (
		web   = "80, name: http, protocol: HTTP, targetPort: 8080"
		tcp   = "5432, name: tcp, protocol: TCP"
		plain = "81, name: plain, targetPort: 8081"
		pass  = "InboundPassthroughCluster"
	)
	ingress := xdstest.Object("Sidecar", "s", `{ingress: [{port: {number: 9090, protocol: HTTP, name: http}, defaultEndpoint: '127.0.0.1:99'},
		{port: {number: 9091, protocol: TCP, name: tcp}}, {port: {number: 9092, protocol: TCP, name: own}, captureMode: NONE, bind: 10.0.0.1}]}`)
	secure := xdstest.Object("Sidecar", "s", `{ingress: [{port: {number: 9090, protocol: HTTPS, name: https}, tls: {mode: SIMPLE, serverCertificate: /c, privateKey: /k}},
		{port: {number: 9091, protocol: TLS, name: tls}, tls: {mode: MUTUAL, serverCertificate: /c, privateKey: /k, caCertificates: /ca}},
		{port: {number: 9092, protocol: HTTPS, name: as-it-comes}, tls: {mode: PASSTHROUGH}}]}`)
	tests := []struct {
		name     string
		mesh     []string
		port     int
		protocol simulate.Protocol
		want     string
		chain    string
	}{
		{name: "HTTP", mesh: []string{serving("web", web)}, port: 8080, want: "inbound|8080||", chain: "0.0.0.0_8080"},
		{name: "the service's own port is none of the workload's", mesh: []string{serving("web", web)}, port: 80, want: pass, chain: "virtualInbound-catchall-http"},
		{name: "TCP", mesh: []string{serving("db", tcp)}, port: 5432, protocol: simulate.TCP, want: "inbound|5432||"},
		{name: "HTTP to a port of TCP", mesh: []string{serving("db", tcp)}, port: 5432, want: "inbound|5432||"},
		{name: "HTTP found on a port that declares nothing", mesh: []string{serving("raw", plain)}, port: 8081, want: "inbound|8081||", chain: "0.0.0.0_8081"},
		{name: "and HTTP/2", mesh: []string{serving("raw", plain)}, port: 8081, protocol: simulate.HTTP2, want: "inbound|8081||"},
		{name: "and anything else", mesh: []string{serving("raw", plain)}, port: 8081, protocol: simulate.TCP, want: "inbound|8081||"},
		{name: "no known port", mesh: []string{serving("web", web)}, port: 99, protocol: simulate.TCP, want: pass, chain: "virtualInbound"},
		{name: "the port of the listener itself", port: 15006, protocol: simulate.TCP, want: "BlackHoleCluster", chain: "virtualInbound-blackhole"},
		{name: "HTTP to it", port: 15006, want: "BlackHoleCluster"},
		{name: "another workload's service", mesh: []string{service("web", "web.example.com", "{number: 80, name: http, protocol: HTTP}")}, port: 80, want: pass},
		{name: "a service of another namespace", mesh: []string{serving("shop/web", web)}, port: 8080, want: pass},
		{name: "an ingress port", mesh: []string{ingress}, port: 9090, want: "inbound|9090||"},
		{name: "for TCP", mesh: []string{ingress}, port: 9091, protocol: simulate.TCP, want: "inbound|9091||"},
		{name: "it replaces the ports of services", mesh: []string{ingress, serving("web", web)}, port: 8080, want: pass},
		{name: "HTTP in TLS", mesh: []string{secure}, port: 9090, protocol: simulate.HTTPS, want: "inbound|9090||", chain: "0.0.0.0_9090"},
		{name: "bytes in TLS", mesh: []string{secure}, port: 9091, protocol: simulate.TLS, want: "inbound|9091||", chain: "0.0.0.0_9091"},
		{name: "plaintext where TLS is ended", mesh: []string{secure}, port: 9090, want: "listener virtualInbound: plaintext where TLS is spoken", chain: "0.0.0.0_9090"},
		{name: "TLS that is not ended", mesh: []string{secure}, port: 9092, protocol: simulate.TLS, want: "inbound|9092||", chain: "0.0.0.0_9092"},
		{name: "one that captures nothing", mesh: []string{ingress}, port: 9092, protocol: simulate.TCP, want: pass},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := xdstest.NewWorld(t, tt.mesh...).Simulate(captured).Run(simulate.Request{
				Inbound: true, Address: "10.0.0.1", Port: tt.port, Protocol: tt.protocol, Host: "any.example.org",
			})
			if got.String() != tt.want || got.Listener != "virtualInbound" || tt.chain != "" && got.FilterChain != tt.chain {
				t.Errorf("got %s by %s of %s, want %s by %s", got, got.FilterChain, got.Listener, tt.want, tt.chain)
			}
		})
	}
}

// TestOlderServiceDecidesOfAPort: if two services share a port of a workload, the older
// decides its protocol.
func TestOlderServiceDecidesOfAPort(t *testing.T) {
	t.Parallel()
	http, tcp := serving("web", "80, name: http, protocol: HTTP, targetPort: 8080"), serving("db", "5432, name: tcp, protocol: TCP, targetPort: 8080")
	for want, mesh := range map[string][]string{"inbound|http|80": {http, tcp}, "": {tcp, http}} {
		s := xdstest.NewWorld(t, mesh...).Simulate(captured)
		got := s.Run(simulate.Request{Inbound: true, Address: "10.0.0.1", Port: 8080})
		if got.String() != "inbound|8080||" || got.VirtualHost != want {
			t.Errorf("%v: %s by virtual host %q, want %q", mesh, got, got.VirtualHost, want)
		}
		if n := len(s.Listener("virtualInbound").GetFilterChains()); n != 4 {
			t.Errorf("%d chains, want one of the port beside the three that are always there", n)
		}
	}
}

// TestServersThatSpeakFirst: the proxy does not wait for a client's first bytes if the
// protocol is declared.
func TestServersThatSpeakFirst(t *testing.T) {
	t.Parallel()
	s := xdstest.NewWorld(t, serving("db", "5432, name: tcp, protocol: TCP"), serving("raw", "81, name: plain"),
		at("db2", tcp5432, "10.9.0.1")).Simulate(captured)
	for _, f := range s.Listener("virtualInbound").GetListenerFilters() {
		if f.GetName() != envoy.HTTPInspectorName {
			continue
		}
		ports := map[int32]bool{}
		for _, rule := range f.GetFilterDisabled().GetOrMatch().GetRules() {
			ports[rule.GetDestinationPortRange().GetStart()] = true
		}
		if len(ports) != 2 || !ports[5432] || !ports[15006] {
			t.Errorf("the ports that are not inspected: %v", ports)
		}
	}
	if filters := s.Listener("10.9.0.1_5432").GetListenerFilters(); len(filters) > 0 {
		t.Errorf("a listener for TCP inspects: %v", filters)
	}
}

// TestTransparentInbound: a transparent proxy shows the application its clients'
// addresses.
func TestTransparentInbound(t *testing.T) {
	t.Parallel()
	w := xdstest.NewWorld(t, serving("web", "80, name: http, protocol: HTTP"))
	for mode, want := range map[discovery.InterceptionMode][2]bool{
		discovery.InterceptionRedirect: {false, true}, discovery.InterceptionTproxy: {true, false},
	} {
		s := w.Simulate(xdstest.Node{Interception: mode})
		keeps := false
		for _, f := range s.Listener("virtualInbound").GetListenerFilters() {
			keeps = keeps || f.GetName() == envoy.OriginalSrcName
		}
		for _, name := range []string{"inbound|80||", "InboundPassthroughCluster"} {
			binds := s.Cluster(name).GetUpstreamBindConfig().GetSourceAddress().GetAddress() == "127.0.0.6"
			if keeps != want[0] || binds != want[1] {
				t.Errorf("%s, mode %s: the client's address is kept: %v; that of the proxy is taken: %v", name, mode, keeps, binds)
			}
		}
	}
}

// TestIngressWithASocket: the proxy listens on an ingress port that captures nothing.
func TestIngressWithASocket(t *testing.T) {
	t.Parallel()
	s := xdstest.NewWorld(t, xdstest.Object("Sidecar", "s",
		"{ingress: [{port: {number: 9092, protocol: TCP, name: own}, captureMode: NONE}]}")).Simulate(captured)
	l := s.Listener("10.0.0.1_9092")
	if l == nil || l.GetBindToPort() != nil || envoytest.TCPProxyOf(l.GetFilterChains()[0]).GetCluster() != "inbound|9092||" {
		t.Errorf("the listener is %v", l)
	}
}

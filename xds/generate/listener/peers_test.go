package listener_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/simulate"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// peers is a PeerAuthentication.
func peers(name, spec string) string { return xdstest.Object("PeerAuthentication", name, spec) }

// clients are connections to a workload, by what makes them.
var clients = map[string]simulate.Request{
	"HTTP":             {Protocol: simulate.HTTP},
	"HTTP/2":           {Protocol: simulate.HTTP2},
	"bytes":            {Protocol: simulate.TCP},
	"mesh, HTTP":       {Protocol: simulate.HTTPS, ALPN: []string{"istio-http/1.1", "istio", "http/1.1"}},
	"mesh, HTTP/2":     {Protocol: simulate.HTTPS, ALPN: []string{"istio-h2", "istio", "h2"}},
	"mesh, bytes":      {Protocol: simulate.TLS, ALPN: []string{"istio"}},
	"Istio, bytes":     {Protocol: simulate.TLS, ALPN: []string{"istio-peer-exchange", "istio"}},
	"gRPC, alone":      {Protocol: simulate.HTTPS, ALPN: []string{"h2"}},
	"TLS of a program": {Protocol: simulate.TLS, ALPN: []string{"h2", "http/1.1"}},
}

// end says what becomes of a connection: closed, or plain or mutual, and requests or bytes.
func end(p *simulate.Proxy, port int, r simulate.Request) string {
	r.Inbound, r.Address, r.Port = true, "10.0.0.1", port
	got := p.Run(r)
	if got.Chain == nil {
		return "closed"
	}
	out := "plain"
	if got.Chain.GetTransportSocket() != nil {
		if out = "mutual"; r.Protocol != simulate.HTTPS && r.Protocol != simulate.TLS {
			return "closed"
		}
	}
	if strings.Contains(fmt.Sprint(got.Chain.GetFilters()), "HttpConnectionManager") {
		return out + " HTTP"
	}
	return out + " bytes"
}

// TestPeerModes: what a workload does with a connection, by mode, by what the port declares,
// and by who calls. (Istio: getFilterChainsByServicePort.)
func TestPeerModes(t *testing.T) {
	t.Parallel()
	ports := []string{serving("web", "80, name: http, protocol: HTTP"), serving("db", "5432, name: tcp, protocol: TCP"), serving("raw", "81, name: plain")}
	certified := captured
	certified.Certified = true
	type ends map[string]string // by client
	for _, c := range []struct {
		mode string
		port int
		want ends
	}{
		{"STRICT", 80, ends{"HTTP": "closed", "HTTP/2": "closed", "bytes": "closed", "mesh, HTTP": "mutual HTTP", "mesh, HTTP/2": "mutual HTTP", "mesh, bytes": "mutual HTTP", "gRPC, alone": "mutual HTTP"}},
		{"STRICT", 5432, ends{"HTTP": "closed", "bytes": "closed", "mesh, HTTP": "mutual bytes", "mesh, bytes": "mutual bytes", "Istio, bytes": "mutual bytes", "TLS of a program": "mutual bytes"}},
		{"STRICT", 81, ends{"HTTP": "closed", "bytes": "closed", "mesh, HTTP": "mutual HTTP", "mesh, HTTP/2": "mutual HTTP", "mesh, bytes": "mutual bytes", "Istio, bytes": "mutual bytes", "gRPC, alone": "mutual bytes"}},
		{"PERMISSIVE", 80, ends{"HTTP": "plain HTTP", "HTTP/2": "plain HTTP", "mesh, HTTP": "mutual HTTP", "mesh, HTTP/2": "mutual HTTP", "gRPC, alone": "mutual HTTP"}},
		{"PERMISSIVE", 5432, ends{"HTTP": "plain bytes", "bytes": "plain bytes", "mesh, bytes": "mutual bytes", "Istio, bytes": "mutual bytes", "TLS of a program": "plain bytes"}},
		{"PERMISSIVE", 81, ends{"HTTP": "plain HTTP", "HTTP/2": "plain HTTP", "bytes": "plain bytes", "mesh, HTTP": "mutual HTTP", "mesh, HTTP/2": "mutual HTTP", "mesh, bytes": "mutual bytes", "TLS of a program": "plain bytes"}},
		{"DISABLE", 80, ends{"HTTP": "plain HTTP", "HTTP/2": "plain HTTP"}},
		{"DISABLE", 5432, ends{"HTTP": "plain bytes", "bytes": "plain bytes", "TLS of a program": "plain bytes"}},
		{"DISABLE", 81, ends{"HTTP": "plain HTTP", "bytes": "plain bytes", "TLS of a program": "plain bytes"}},
		// Ports that no service names.
		{"STRICT", 99, ends{"HTTP": "closed", "bytes": "closed", "mesh, HTTP": "mutual HTTP", "mesh, bytes": "mutual bytes"}},
		{"PERMISSIVE", 99, ends{"HTTP": "plain HTTP", "bytes": "plain bytes", "mesh, HTTP": "mutual HTTP", "mesh, bytes": "mutual bytes", "TLS of a program": "plain bytes"}},
		{"DISABLE", 99, ends{"HTTP": "plain HTTP", "bytes": "plain bytes", "TLS of a program": "plain bytes"}},
	} {
		p := xdstest.NewWorld(t, append(ports, peers("default", "{mtls: {mode: "+c.mode+"}}"))...).Simulate(certified)
		for client, want := range c.want {
			if got := end(p, c.port, clients[client]); got != want {
				t.Errorf("%s, port %d: %s ends %s, want %s", c.mode, c.port, client, got, want)
			}
		}
	}
}

// TestPeerModesOfPorts: a policy of the workload names modes by the port of the workload, also
// of ports that no service names.
func TestPeerModesOfPorts(t *testing.T) {
	t.Parallel()
	certified := captured
	certified.Certified, certified.Labels = true, map[string]string{"app": "web"}
	p := xdstest.NewWorld(t, serving("web", "80, name: http, protocol: HTTP, targetPort: 8080"), serving("db", "5432, name: tcp, protocol: TCP"),
		peers("web", "{selector: {matchLabels: {app: web}}, mtls: {mode: STRICT}, portLevelMtls: {8080: {mode: DISABLE}, 9999: {mode: PERMISSIVE}, 80: {mode: PERMISSIVE}}}")).Simulate(certified)
	for port, want := range map[int][2]string{8080: {"plain HTTP", "plain HTTP"}, 5432: {"closed", "mutual bytes"}, 9999: {"plain HTTP", "mutual HTTP"}, 80: {"plain HTTP", "mutual HTTP"}, 7: {"closed", "mutual HTTP"}} {
		got := [2]string{end(p, port, clients["HTTP"]), end(p, port, clients["mesh, HTTP"])}
		if port == 8080 { // TLS goes to a chain that takes what comes
			got[1], want[1] = "", ""
		}
		if got != want {
			t.Errorf("port %d: in plaintext and over mutual TLS %q, want %q", port, got, want)
		}
	}
	// A port that takes plaintext alone is not searched for TLS, so a server may speak first.
	for _, f := range p.Listener("virtualInbound").GetListenerFilters() {
		if f.GetName() != envoy.TLSInspectorName {
			continue
		}
		var skipped []int32
		for _, rule := range f.GetFilterDisabled().GetOrMatch().GetRules() {
			skipped = append(skipped, rule.GetDestinationPortRange().GetStart())
		}
		if !slices.Equal(skipped, []int32{15006, 8080}) {
			t.Errorf("not searched for TLS: %v", skipped)
		}
	}
}

// TestTLSIsSearchedWhereItCounts: if unknown ports take plaintext alone, only the ports with
// mutual TLS are searched for it.
func TestTLSIsSearchedWhereItCounts(t *testing.T) {
	t.Parallel()
	certified := captured
	certified.Certified, certified.Labels = true, map[string]string{"app": "web"}
	p := xdstest.NewWorld(t, serving("web", "80, name: http, protocol: HTTP"), serving("db", "5432, name: tcp, protocol: TCP"),
		peers("web", "{selector: {matchLabels: {app: web}}, mtls: {mode: DISABLE}, portLevelMtls: {80: {mode: PERMISSIVE}}}")).Simulate(certified)
	for port, want := range map[int]string{80: "mutual HTTP", 5432: "plain bytes", 99: "plain bytes"} {
		if got := end(p, port, clients["mesh, HTTP"]); got != want {
			t.Errorf("port %d: %s, want %s", port, got, want)
		}
	}
}

// TestWithoutACertificate: a proxy without one takes plaintext, and nothing where mutual TLS is
// demanded.
func TestWithoutACertificate(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string]string{"STRICT": "BlackHoleCluster", "PERMISSIVE": "inbound|80||", "DISABLE": "inbound|80||", "UNSET": "inbound|80||"} {
		p := xdstest.NewWorld(t, serving("web", "80, name: http, protocol: HTTP"), peers("default", "{mtls: {mode: "+mode+"}}")).Simulate(captured)
		if got := p.Run(simulate.Request{Inbound: true, Address: "10.0.0.1", Port: 80}).String(); got != want {
			t.Errorf("%s: %s, want %s", mode, got, want)
		}
		want := strings.Replace(want, "inbound|80||", "InboundPassthroughCluster", 1)
		if got := p.Run(simulate.Request{Inbound: true, Address: "10.0.0.1", Port: 99, Protocol: simulate.TCP}).String(); got != want {
			t.Errorf("%s: of an unknown port %s, want %s", mode, got, want)
		}
	}
}

// TestPeerModesOfIngress: an ingress listener with its own socket takes the modes of the mesh
// too. One with tls takes that TLS beside the mesh's, and alone where that is off.
func TestPeerModesOfIngress(t *testing.T) {
	t.Parallel()
	ingress := xdstest.Object("Sidecar", "s", `{ingress: [{port: {number: 9090, protocol: HTTP, name: http}, bind: 10.0.0.1, defaultEndpoint: '127.0.0.1:99'},
		{port: {number: 9443, protocol: HTTPS, name: https}, bind: 10.0.0.1, tls: {mode: SIMPLE, serverCertificate: /c, privateKey: /k}}]}`)
	for mode, want := range map[string][4]string{ // HTTP and mesh to 9090, TLS and mesh to 9443
		"STRICT":     {"closed", "mutual HTTP", "mutual HTTP", "mutual HTTP"},
		"PERMISSIVE": {"plain HTTP", "mutual HTTP", "own HTTP", "mutual HTTP"},
		"DISABLE":    {"plain HTTP", "plain HTTP", "own HTTP", "own HTTP"},
	} {
		p := xdstest.NewWorld(t, ingress, peers("default", "{mtls: {mode: "+mode+"}}")).Simulate(xdstest.Node{Interception: discovery.InterceptionNone, Certified: true})
		own := func(client string) string { // which of the two sockets takes it
			r := clients[client]
			r.Inbound, r.Address, r.Port = true, "10.0.0.1", 9443
			got := end(p, 9443, r)
			if chain := p.Run(r).Chain; chain != nil && strings.Contains(fmt.Sprint(chain.GetTransportSocket()), "file-cert") {
				return strings.Replace(got, "mutual", "own", 1)
			}
			return got
		}
		got := [4]string{end(p, 9090, clients["HTTP"]), end(p, 9090, clients["mesh, HTTP"]), own("TLS of a program"), own("mesh, HTTP")}
		if got != want {
			t.Errorf("%s: %q, want %q", mode, got, want)
		}
	}
}

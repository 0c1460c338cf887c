package listener_test

import (
	"testing"

	"github.com/portolan-mesh/portolan/storage/secret"
	"github.com/portolan-mesh/portolan/xds/simulate"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestGatewayPassesTLS: where a gateway passes TLS on to, by SNI name.
func TestGatewayPassesTLS(t *testing.T) {
	t.Parallel()
	const a, b, closed, shut = "outbound|5432||a.example.com", "outbound|5432||b.example.com", "listener 0.0.0.0_443: no filter chain", "no listener"
	server := func(more string) string {
		return "{port: {number: 443, name: p, protocol: TLS}, tls: {mode: PASSTHROUGH}, " + more + "}"
	}
	every, some := server("hosts: ['*']"), server("hosts: [x.test, '*.y.test']")
	via := func(name, tls string) string {
		return routes(name, "hosts: [x.test, z.test, '*.y.test'], gateways: [g, shop/g, mesh], tls: ["+tls+"]")
	}
	match := func(m, to string) string { return "{match: [" + m + "], route: [" + to + "]}" }
	tests := []struct {
		name  string
		mesh  []string
		sni   string
		plain bool
		want  string
	}{
		{name: "a name", mesh: []string{edgeGateway("g", every), via("v", match("{sniHosts: [x.test]}", to("a")))}, sni: "x.test", want: a},
		{name: "a name in capitals", mesh: []string{edgeGateway("g", every), via("v", match("{sniHosts: [X.test]}", to("a")))}, sni: "x.TEST", want: a},
		{name: "another name", mesh: []string{edgeGateway("g", every), via("v", match("{sniHosts: [x.test]}", to("a")))}, sni: "z.test", want: closed},
		{name: "no name", mesh: []string{edgeGateway("g", every), via("v", match("{sniHosts: [x.test]}", to("a")))}, want: closed},
		{name: "plaintext", mesh: []string{edgeGateway("g", every), via("v", match("{sniHosts: [x.test]}", to("a")))}, plain: true, want: closed},
		{name: "a pattern", mesh: []string{edgeGateway("g", every), via("v", match("{sniHosts: ['*.y.test']}", to("a")))}, sni: "q.y.test", want: a},
		{name: "a name under a pattern", mesh: []string{edgeGateway("g", every), via("v", match("{sniHosts: ['*.y.test']}", to("a"))+", "+match("{sniHosts: [q.y.test]}", to("b")))}, sni: "q.y.test", want: b},
		{name: "every name", mesh: []string{edgeGateway("g", every), routes("v", "hosts: ['*'], gateways: [g], tls: ["+match("{sniHosts: ['*']}", to("a"))+"]")}, sni: "q.test", want: a},
		{name: "every name, none asked for", mesh: []string{edgeGateway("g", every), routes("v", "hosts: ['*'], gateways: [g], tls: ["+match("{sniHosts: ['*']}", to("a"))+"]")}, want: a},
		{name: "every name, plaintext", mesh: []string{edgeGateway("g", every), routes("v", "hosts: ['*'], gateways: [g], tls: ["+match("{sniHosts: ['*']}", to("a"))+"]")}, plain: true, want: closed},
		{name: "every name of the server", mesh: []string{edgeGateway("g", some), routes("v", "hosts: ['*'], gateways: [g], tls: ["+match("{sniHosts: ['*']}", to("a"))+"]")}, sni: "q.y.test", want: a},
		{name: "no name of the server", mesh: []string{edgeGateway("g", some), via("v", match("{sniHosts: [x.test, z.test]}", to("a")))}, sni: "z.test", want: closed},
		{name: "another port", mesh: []string{edgeGateway("g", every), via("v", match("{sniHosts: [x.test], port: 444}", to("a")))}, sni: "x.test", want: shut},
		{name: "sidecars", mesh: []string{edgeGateway("g", every), via("v", match("{sniHosts: [x.test], gateways: [mesh]}", to("a")))}, sni: "x.test", want: shut},
		{name: "no route", mesh: []string{edgeGateway("g", every)}, sni: "x.test", want: shut},
		{name: "a tcp route", mesh: []string{edgeGateway("g", every), routes("v", "hosts: [x.test], gateways: [g], tcp: [{route: ["+to("a")+"]}]")}, sni: "x.test", want: shut},
		{name: "weights", mesh: []string{edgeGateway("g", every), via("v", match("{sniHosts: [x.test]}", "{destination: {host: a.example.com}, weight: 3}, {destination: {host: b.example.com}, weight: 7}"))}, sni: "x.test", want: a + "=3 " + b + "=7"},
		{name: "the first of two matches", mesh: []string{edgeGateway("g", every), via("v", match("{sniHosts: [x.test]}", to("a"))+", "+match("{sniHosts: [z.test, x.test]}", to("b")))}, sni: "x.test", want: a},
		{name: "the other name of the second", mesh: []string{edgeGateway("g", every), via("v", match("{sniHosts: [x.test]}", to("a"))+", "+match("{sniHosts: [z.test, x.test]}", to("b")))}, sni: "z.test", want: b},
		{name: "the oldest of two", mesh: []string{edgeGateway("g", every), via("z", match("{sniHosts: [x.test]}", to("a"))), via("v", match("{sniHosts: [x.test]}", to("b")))}, sni: "x.test", want: a},
		{name: "of a namespace that the host is not for", mesh: []string{edgeGateway("g", server("hosts: [shop/x.test]")), via("v", match("{sniHosts: [x.test]}", to("a")))}, sni: "x.test", want: shut},
		{name: "a host of another server", mesh: []string{edgeGateway("g", server("hosts: ['*.y.test']")+", {port: {number: 443, name: q, protocol: TLS}, tls: {mode: PASSTHROUGH}, hosts: [q.y.test]}"),
			routes("v", "hosts: [q.y.test], gateways: [g], tls: ["+match("{sniHosts: [q.y.test]}", to("a"))+"]")}, sni: "q.y.test", want: a},
		{name: "a server of HTTPS without a certificate beside", mesh: []string{edgeGateway("g", every+", {port: {number: 443, name: h, protocol: HTTPS}, tls: {mode: SIMPLE, credentialName: none}, hosts: [h.test]}"),
			via("v", match("{sniHosts: [x.test]}", to("a")))}, sni: "x.test", want: a},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := xdstest.NewWorld(t, append([]string{at("a", tcp5432), at("b", tcp5432)}, tc.mesh...)...)
			request := simulate.Request{Port: 443, Protocol: simulate.TLS, SNI: tc.sni}
			if tc.plain {
				request.Protocol = simulate.TCP
			}
			if got := w.Simulate(edgeNode).Run(request).String(); got != tc.want {
				t.Errorf("it goes to %s, want %s", got, tc.want)
			}
		})
	}
}

// TestGatewayTerminatesTLSForBytes: a server that terminates TLS forwards the content by a tcp
// route, once its certificate is present.
func TestGatewayTerminatesTLSForBytes(t *testing.T) {
	t.Parallel()
	const a, closed, shut = "outbound|5432||a.example.com", "listener 0.0.0.0_443: no filter chain", "no listener"
	server := func(tls string) string {
		return "{port: {number: 443, name: p, protocol: TLS}, tls: " + tls + ", hosts: [x.test, '*.y.test']}"
	}
	route := routes("v", "hosts: [x.test], gateways: [g], tcp: [{route: ["+to("a")+"]}]")
	const simple, mutual = "{mode: SIMPLE, credentialName: c}", "{mode: MUTUAL, credentialName: c}"
	tests := []struct {
		name   string
		tls    string
		stored []string
		sni    string
		want   string
	}{
		{name: "SIMPLE", tls: simple, stored: []string{secret.TLSCert, secret.TLSKey}, sni: "x.test", want: a},
		{name: "under a pattern", tls: simple, stored: []string{secret.TLSCert, secret.TLSKey}, sni: "q.y.test", want: a},
		{name: "another name", tls: simple, stored: []string{secret.TLSCert, secret.TLSKey}, sni: "z.test", want: closed},
		{name: "no certificate", tls: simple, sni: "x.test", want: shut},
		{name: "MUTUAL", tls: mutual, stored: []string{secret.TLSCert, secret.TLSKey, secret.TLSAuthority}, sni: "x.test", want: a},
		{name: "MUTUAL without authorities", tls: mutual, stored: []string{secret.TLSCert, secret.TLSKey}, sni: "x.test", want: shut},
		{name: "files", tls: "{mode: SIMPLE, serverCertificate: /c, privateKey: /k}", sni: "x.test", want: a},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := xdstest.NewWorld(t, at("a", tcp5432), edgeGateway("g", server(tc.tls)), route)
			if len(tc.stored) > 0 {
				w.PutSecret("default/c", tc.stored...)
			}
			if got := w.Simulate(edgeNode).Run(simulate.Request{Port: 443, Protocol: simulate.TLS, SNI: tc.sni}).String(); got != tc.want {
				t.Errorf("it goes to %s, want %s", got, tc.want)
			}
		})
	}
}

// TestGatewayPassesServices: where TLS goes whose SNI names a cluster.
func TestGatewayPassesServices(t *testing.T) {
	t.Parallel()
	const closed = "listener 0.0.0.0_15443: no filter chain"
	gateway := edgeGateway("g", "{port: {number: 15443, name: p, protocol: TLS}, tls: {mode: AUTO_PASSTHROUGH}, hosts: ['*.example.com']}")
	service := func(name, more string) string {
		return xdstest.Object("ServiceEntry", name, "{hosts: ["+name+"], ports: [{number: 80, name: http, protocol: HTTP}, {number: 90, name: tcp, protocol: TCP}], resolution: STATIC, endpoints: [{address: 10.0.0.1}], "+more+"}")
	}
	mesh := []string{
		gateway, service("a.example.com", "location: MESH_INTERNAL"), service("out.example.com", ""), service("a.example.org", "location: MESH_INTERNAL"),
		xdstest.Object("ServiceEntry", "shop/private", "{hosts: [p.example.com], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, endpoints: [{address: 10.0.0.2}], location: MESH_INTERNAL, exportTo: [.]}"),
		xdstest.Object("DestinationRule", "a", "{host: a.example.com, subsets: [{name: v1, labels: {v: '1'}}], trafficPolicy: {connectionPool: {tcp: {idleTimeout: 7s}}}}"),
	}
	for sni, want := range map[string]string{
		"outbound_.80_._.a.example.com":   "outbound_.80_._.a.example.com",
		"outbound_.90_._.a.example.com":   "outbound_.90_._.a.example.com",
		"outbound_.80_.v1_.a.example.com": "outbound_.80_.v1_.a.example.com",
		"outbound_.80_.v2_.a.example.com": closed,
		"outbound_.81_._.a.example.com":   closed,
		"outbound_.80_._.out.example.com": closed,
		"outbound_.80_._.a.example.org":   closed,
		"outbound_.80_._.p.example.com":   closed,
		"a.example.com":                   closed,
		"":                                closed,
	} {
		p := xdstest.NewWorld(t, mesh...).Simulate(edgeNode)
		request := simulate.Request{Port: 15443, Protocol: simulate.TLS, SNI: sni, ALPN: []string{"h2", "istio"}}
		if got := p.Run(request).String(); got != want {
			t.Errorf("%s goes to %s, want %s", sni, got, want)
		}
		request.ALPN = []string{"h2"}
		if got := p.Run(request).String(); got != closed {
			t.Errorf("%s without a protocol of the mesh goes to %s", sni, got)
		}
		request.Protocol = simulate.TCP
		if got := p.Run(request).String(); got != closed {
			t.Errorf("plaintext goes to %s", got)
		}
	}

	w := xdstest.NewWorld(t, mesh...)
	before := w.Simulate(edgeNode)
	if got := before.EndpointsOf("outbound_.80_._.a.example.com"); len(got) != 1 || got[0] != "10.0.0.1:80" {
		t.Errorf("its endpoints are %v", got)
	}
	for _, name := range before.Clusters() {
		if name == "outbound_.80_._.out.example.com" || name == "outbound_.80_._.a.example.org" || name == "outbound_.80_._.p.example.com" {
			t.Errorf("there is a cluster %s", name)
		}
	}
	if plain := xdstest.NewWorld(t, mesh[1:]...).Simulate(edgeNode); plain.Cluster("outbound_.80_._.a.example.com") != nil {
		t.Error("a gateway without AUTO_PASSTHROUGH has the clusters")
	}
}

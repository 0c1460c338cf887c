package listener_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/secret"
	"github.com/portolan-mesh/portolan/xds/generate/listener"
	"github.com/portolan-mesh/portolan/xds/generate/route"
	"github.com/portolan-mesh/portolan/xds/generate/virtualhost"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/simulate"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// edgeNode is a gateway proxy in the namespace of the test.
var edgeNode = xdstest.Node{Type: discovery.Router, Labels: map[string]string{"app": "edge"}}

// secure is a server that terminates TLS with the secret of the same name.
func secure(name, hosts string) string {
	return "{port: {number: 443, name: " + name + ", protocol: HTTPS}, hosts: [" + hosts + "], tls: {mode: SIMPLE, credentialName: " + name + "}}"
}

func edgeGateway(name, servers string) string {
	return xdstest.Object("Gateway", name, "{selector: {app: edge}, servers: ["+servers+"]}")
}

// answers is a VirtualService with http routes for some hosts of gateways.
func answers(name, gateways, hosts, http string) string {
	return xdstest.Object("VirtualService", name, "{hosts: ["+hosts+"], gateways: ["+gateways+"], http: ["+http+"]}")
}

const says = "{directResponse: {status: 200, body: {string: $text}}}"

func saying(text string) string { return strings.Replace(says, "$text", text, 1) }

// TestGatewayTLS: which server gets requests over TLS, and what happens to requests for
// servers without a certificate.
func TestGatewayTLS(t *testing.T) {
	t.Parallel()
	a, b := answers("a", "g", "a.test", saying("a")), answers("b", "g, h", "b.test", saying("b"))
	const none, plain, encrypted = "listener 0.0.0.0_443: no filter chain", "listener 0.0.0.0_443: plaintext where TLS is spoken", "listener 0.0.0.0_443: TLS where plaintext is spoken"
	const http = "{port: {number: 443, name: http, protocol: HTTP}, hosts: ['*']}"
	both := edgeGateway("g", secure("a", "a.test")+", "+secure("b", "b.test"))
	tests := []struct {
		name    string
		secrets []string // besides a
		mesh    []string
		request simulate.Request
		want    string
	}{
		{name: "by its name", mesh: []string{both, a, b}, request: simulate.Request{Host: "a.test"}, want: "200 a"},
		{name: "another name of no server", mesh: []string{both, a, b}, request: simulate.Request{Host: "c.test"}, want: none},
		{name: "a server without its certificate", mesh: []string{both, a, b}, request: simulate.Request{Host: "b.test"}, want: none},
		{name: "beside one without, the certificate comes", mesh: []string{both, a, b}, secrets: []string{"b"}, request: simulate.Request{Host: "b.test"}, want: "200 b"},
		{name: "a secret of another namespace", mesh: []string{both, a, b}, secrets: []string{"shop/b"}, request: simulate.Request{Host: "b.test"}, want: none},
		{name: "no server with a certificate", mesh: []string{edgeGateway("g", secure("b", "b.test")), b}, request: simulate.Request{Host: "b.test"}, want: "no listener"},
		{name: "the host of another server", mesh: []string{both, a, b}, secrets: []string{"b"}, request: simulate.Request{Host: "b.test", SNI: "a.test"}, want: "421"},
		{name: "the host of another server, in capitals, with a port and a dot", mesh: []string{both, a, b}, secrets: []string{"b"}, request: simulate.Request{Host: "B.test:443", SNI: "a.test"}, want: "421"},
		{name: "the host of another server that has no routes", mesh: []string{both, a}, request: simulate.Request{Host: "b.test", SNI: "a.test"}, want: "421"},
		{name: "the host of another server, on a server without routes", mesh: []string{both}, request: simulate.Request{Host: "b.test", SNI: "a.test"}, want: "421"},
		{name: "the host of another Gateway's server", mesh: []string{edgeGateway("g", secure("a", "a.test")), edgeGateway("h", secure("b", "b.test")), a, b}, request: simulate.Request{Host: "b.test", SNI: "a.test"}, want: "421"},
		{name: "the host of a server that passes TLS on", mesh: []string{edgeGateway("g", secure("a", "a.test")+", {port: {number: 443, name: b, protocol: TLS}, hosts: [b.test], tls: {mode: PASSTHROUGH}}"), a}, request: simulate.Request{Host: "b.test", SNI: "a.test"}, want: "421"},
		{name: "the host of a server that terminates TLS for bytes", mesh: []string{edgeGateway("g", secure("a", "a.test")+", {port: {number: 443, name: b, protocol: TLS}, hosts: [b.test], tls: {mode: SIMPLE, credentialName: b}}"), a}, request: simulate.Request{Host: "b.test", SNI: "a.test"}, want: "421"},
		{name: "a host of AUTO_PASSTHROUGH", mesh: []string{edgeGateway("g", secure("a", "a.test")+", {port: {number: 443, name: b, protocol: TLS}, hosts: [b.test], tls: {mode: AUTO_PASSTHROUGH}}"), a}, request: simulate.Request{Host: "b.test", SNI: "a.test"}, want: "no virtual host"},
		{name: "the host of a server on another port", mesh: []string{edgeGateway("g", secure("a", "a.test")+", "+strings.Replace(secure("b", "b.test"), "443", "444", 1)), a, b}, secrets: []string{"b"}, request: simulate.Request{Host: "b.test", SNI: "a.test"}, want: "no virtual host"},
		{name: "a host of nobody", mesh: []string{both, a, b}, secrets: []string{"b"}, request: simulate.Request{Host: "c.test", SNI: "a.test"}, want: "no virtual host"},
		{name: "a name behind a pattern", mesh: []string{edgeGateway("g", secure("a", "'*.test'")+", "+secure("b", "b.test")), answers("a", "g", "'*.test'", saying("a")), b}, secrets: []string{"b"}, request: simulate.Request{Host: "b.test", SNI: "a.test"}, want: "421"},
		{name: "a name behind a pattern, with routes of both", mesh: []string{edgeGateway("g", secure("a", "'*.test'")), edgeGateway("h", secure("b", "b.test")), answers("a", "g", "b.test", saying("a")), b}, secrets: []string{"b"}, request: simulate.Request{Host: "b.test", SNI: "a.test"}, want: "421"},
		{name: "a pattern beside its name", mesh: []string{edgeGateway("g", secure("b", "'*.test'")+", "+secure("a", "a.test")), a, b}, secrets: []string{"b"}, request: simulate.Request{Host: "b.test", SNI: "a.test"}, want: "421"},
		{name: "a pattern within a pattern", mesh: []string{edgeGateway("g", secure("a", "'*.test'")+", "+secure("b", "'*.x.test'")), answers("a", "g", "'*'", saying("a"))}, request: simulate.Request{Host: "y.x.test", SNI: "a.test"}, want: "421"},
		{name: "beside a pattern within a pattern", mesh: []string{edgeGateway("g", secure("a", "'*.test'")+", "+secure("b", "'*.x.test'")), answers("a", "g", "'*'", saying("a"))}, request: simulate.Request{Host: "y.z.test", SNI: "a.test"}, want: "200 a"},
		{name: "any name beside a name", mesh: []string{edgeGateway("g", secure("b", "'*'")+", "+secure("a", "a.test")), a, b}, secrets: []string{"b"}, request: simulate.Request{Host: "c.test", SNI: "a.test"}, want: "421"},
		{name: "a pattern", mesh: []string{edgeGateway("g", secure("a", "'*.test'")), a}, request: simulate.Request{Host: "a.test"}, want: "200 a"},
		{name: "a pattern behind a name", mesh: []string{edgeGateway("g", secure("b", "'*.test'")+", "+secure("a", "a.test")), a, b}, secrets: []string{"b"}, request: simulate.Request{Host: "a.test"}, want: "200 a"},
		{name: "any name", mesh: []string{edgeGateway("g", secure("a", "'*'")), a}, request: simulate.Request{Host: "a.test", SNI: "c.test"}, want: "200 a"},
		{name: "no name", mesh: []string{edgeGateway("g", secure("a", "'*'")), a}, request: simulate.Request{Protocol: simulate.TLS, Host: "a.test"}, want: "200 a"},
		{name: "in capitals", mesh: []string{edgeGateway("g", secure("a", "A.test")), a}, request: simulate.Request{Host: "a.test"}, want: "200 a"},
		{name: "the host with its port", mesh: []string{both, a}, request: simulate.Request{Host: "a.test:443"}, want: "200 a"},
		{name: "a server for one namespace", mesh: []string{edgeGateway("g", secure("a", "other/a.test")), a}, request: simulate.Request{Host: "a.test"}, want: "no route"},
		{name: "plaintext", mesh: []string{edgeGateway("g", secure("a", "'*'")), a}, request: simulate.Request{Protocol: simulate.HTTP, Host: "a.test"}, want: plain},
		{name: "plaintext for names", mesh: []string{both, a}, request: simulate.Request{Protocol: simulate.HTTP, Host: "a.test"}, want: none},
		{name: "two Gateways", mesh: []string{edgeGateway("g", secure("a", "a.test")), edgeGateway("h", secure("b", "b.test")), a, b}, secrets: []string{"b"}, request: simulate.Request{Host: "b.test"}, want: "200 b"},
		{name: "the host of an older Gateway takes all of the younger", mesh: []string{edgeGateway("g", secure("a", "a.test")), edgeGateway("h", secure("b", "a.test, b.test")), a, b}, secrets: []string{"b"}, request: simulate.Request{Host: "b.test"}, want: none},
		{name: "the older lacks its certificate, and keeps the host", mesh: []string{edgeGateway("g", secure("b", "b.test")), edgeGateway("h", secure("a", "b.test")), b}, request: simulate.Request{Host: "b.test"}, want: "no listener"},
		{name: "a port that HTTP has", mesh: []string{edgeGateway("g", http), edgeGateway("h", secure("a", "a.test")), a}, request: simulate.Request{Host: "a.test"}, want: encrypted},
		{name: "HTTP that comes later has plaintext alone", mesh: []string{edgeGateway("g", secure("a", "a.test")), edgeGateway("h", http), a, b}, request: simulate.Request{Host: "b.test"}, want: none},
		{name: "plaintext beside TLS", mesh: []string{edgeGateway("g", secure("a", "'*'")), edgeGateway("h", http), a, b}, request: simulate.Request{Protocol: simulate.HTTP, Host: "b.test"}, want: "200 b"},
		{name: "plaintext beside TLS without a certificate", mesh: []string{edgeGateway("g", secure("b", "'*'")), edgeGateway("h", http), a, b}, request: simulate.Request{Host: "b.test"}, want: none},
		{name: "the scheme", mesh: []string{both, answers("s", "g", "a.test", "{match: [{scheme: {exact: https}}], directResponse: {status: 200, body: {string: s}}}")}, request: simulate.Request{Host: "a.test"}, want: "200 s"},
		{name: "a redirect to the port of the request", mesh: []string{both, answers("s", "g", "a.test", "{redirect: {uri: /x, derivePort: FROM_REQUEST_PORT}}")}, request: simulate.Request{Host: "a.test"}, want: "301 to https://a.test/x"},
		{name: "a redirect to HTTPS within HTTPS", mesh: []string{edgeGateway("g", strings.Replace(secure("a", "a.test"), "mode:", "httpsRedirect: true, mode:", 1)), a}, request: simulate.Request{Host: "a.test"}, want: "200 a"},
		{name: "no routes", mesh: []string{both}, request: simulate.Request{Host: "a.test"}, want: "no route"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := xdstest.NewWorld(t, tc.mesh...)
			for _, name := range append(tc.secrets, "a") {
				w.PutSecret(name, secret.TLSCert, secret.TLSKey)
			}
			tc.request.Port = 443
			if tc.request.Protocol == "" {
				tc.request.Protocol = simulate.HTTPS
			}
			if got := w.Simulate(edgeNode).Run(tc.request).String(); got != tc.want {
				t.Errorf("it gets %s, want %s", got, tc.want)
			}
		})
	}
}

// TestGatewaySecrets: a secret that is added or removed affects the listeners that name
// it. A replaced secret affects none.
func TestGatewaySecrets(t *testing.T) {
	t.Parallel()
	w := xdstest.NewWorld(t, edgeGateway("g", secure("a", "a.test")), edgeGateway("h", strings.ReplaceAll(secure("b", "b.test"), "443", "444")), answers("a", "g", "a.test", saying("a")))
	affected := func(change func()) string {
		before := w.Context()
		change()
		return strings.Join(slices.Collect(listener.Generator{}.Affected(w.View(edgeNode), mesh.Diff(before, w.Context()))), " ")
	}
	for _, step := range []struct {
		name, want string
		entries    []string
	}{
		{"a", "0.0.0.0_443", []string{secret.TLSCert, secret.TLSKey}},
		{"a", "", []string{secret.TLSCert, secret.TLSKey, "more"}},
		{"a-cacert", "0.0.0.0_443", []string{secret.Authority}},
		{"other", "", []string{secret.TLSCert, secret.TLSKey}},
		{"shop/a", "", nil},
		{"b", "0.0.0.0_444", []string{secret.Cert, secret.Key}},
		{"a", "0.0.0.0_443", nil},
	} {
		if got := affected(func() { w.PutSecret(step.name, step.entries...) }); got != step.want {
			t.Errorf("%s with %v affects %q, want %q", step.name, step.entries, got, step.want)
		}
	}
}

// TestGatewayNeeds: a listener needs the secrets and routes of its servers, each once.
func TestGatewayNeeds(t *testing.T) {
	t.Parallel()
	w := xdstest.NewWorld(t, edgeGateway("g", secure("a", "a.test")+", "+strings.Replace(secure("a", "b.test"), "name: a", "name: b", 1)))
	w.PutSecret("a", secret.TLSCert, secret.TLSKey)
	var got []string
	for _, r := range w.Build(edgeNode, listener.Generator{}, route.Generator{}, virtualhost.Generator{}) {
		for _, need := range r.Needs {
			if need.TypeURL == resource.SecretType || need.TypeURL == resource.RouteType {
				got = append(got, r.Name+" "+need.Name)
			}
		}
	}
	want := "0.0.0.0_443 kubernetes://a, 0.0.0.0_443 https.443.a.g.default, 0.0.0.0_443 https.443.b.g.default"
	if strings.Join(got, ", ") != want {
		t.Errorf("got %s, want %s", strings.Join(got, ", "), want)
	}
}

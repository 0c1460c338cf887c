package explain_test

import (
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/secret"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestExplainEncryption: an explanation says how connections are encrypted, and what they lack.
func TestExplainEncryption(t *testing.T) {
	t.Parallel()
	w := xdstest.NewWorld(t,
		xdstest.Object("ServiceEntry", "shop/bank", "{hosts: [bank.test], resolution: STATIC, ports: [{number: 80, name: grpc, protocol: GRPC}, {number: 81, name: named, protocol: HTTP}, {number: 82, name: mesh, protocol: HTTP}, {number: 83, name: secret, protocol: HTTP}, {number: 84, name: plain, protocol: HTTP}], endpoints: [{address: 10.1.0.1}]}"),
		xdstest.Object("DestinationRule", "shop/bank", `{host: bank.test, workloadSelector: {matchLabels: {app: a}}, trafficPolicy: {tls: {mode: SIMPLE}, portLevelSettings: [
			{port: {number: 81}, tls: {mode: MUTUAL, clientCertificate: /c, privateKey: /k, sni: a.test, insecureSkipVerify: true}}, {port: {number: 82}, tls: {mode: ISTIO_MUTUAL}},
			{port: {number: 83}, tls: {mode: MUTUAL, credentialName: bank}}, {port: {number: 84}, tls: {mode: DISABLE}}]}}`))
	labels := map[string]string{"app": "a"}
	m := connected{w, []*discovery.Proxy{
		xdstest.Node{IP: "10.1.0.8", Namespace: "shop", Labels: labels}.Proxy(t),
		xdstest.Node{IP: "10.1.0.7", Namespace: "shop", Labels: labels, Type: discovery.Proxyless}.Proxy(t),
	}}
	check := func(parameters, tls, fails string) {
		t.Helper()
		e, err := explained(t, m, parameters)
		if err != nil || len(e.Destinations) != 1 {
			t.Fatalf("%s: %+v, %v", parameters, e, err)
		}
		if d := e.Destinations[0]; d.TLS != tls || d.Fails != fails {
			t.Errorf("%s: %q, fails %q", parameters, d.TLS, d.Fails)
		}
	}
	const mutual = "over TLS (MUTUAL) as the host of the request"
	check("from=10.1.0.8&to=bank.test:80", "over TLS (SIMPLE) as the host of the request", "")
	check("from=10.1.0.8&to=bank.test:81", "over TLS (MUTUAL) as a.test, to a server that is not verified", "")
	check("from=10.1.0.8&to=bank.test:82", "over TLS (ISTIO_MUTUAL) as outbound_.82_._.bank.test, to a server of spiffe://cluster.local/*", "it must be encrypted, and is sent nowhere: the proxy has no certificate of the mesh")
	check("from=10.1.0.8&to=bank.test:83", mutual, "it must be encrypted, and is sent nowhere: no certificate with its key is stored as secret bank in the namespace of the proxy; no certificate of an authority is stored as secret bank or bank-cacert in the namespace of the proxy")
	check("from=10.1.0.8&to=bank.test:84", "", "")
	for parameters, why := range map[string]string{"from=10.1.0.8&to=bank.test:84": "a DestinationRule says so (tls mode DISABLE)", "from=10.1.0.8&to=bank.test:80": ""} {
		if e, err := explained(t, m, parameters); err != nil || e.Destinations[0].Plaintext != why {
			t.Errorf("%s: plaintext %q, %v", parameters, e.Destinations[0].Plaintext, err)
		}
	}
	check("from=10.1.0.7&to=bank.test:80", "over TLS (SIMPLE) as the host of the request", "its rule asks for TLS, which gRPC clients are not given: they get no endpoint")
	w.PutSecret("shop/bank", secret.TLSCert, secret.TLSKey, secret.TLSAuthority)
	check("from=10.1.0.8&to=bank.test:83", mutual, "")
}

// TestExplainMutualTLS: an explanation says which connections are encrypted without a rule, whom
// the server must be, and which PeerAuthentication lets the request in or refuses it.
func TestExplainMutualTLS(t *testing.T) {
	t.Parallel()
	const as = "over mutual TLS of the mesh as outbound_.80_._.web.test, to a server of "
	entry := func(endpoints string) string {
		return xdstest.Object("ServiceEntry", "web", "{hosts: [web.test], location: MESH_INTERNAL, resolution: STATIC, addresses: [10.9.0.1], ports: [{number: 80, name: http, protocol: HTTP}], endpoints: ["+endpoints+"]}")
	}
	const mutual, plain = "{address: 10.1.0.1, serviceAccount: web, labels: {app: web}}", "{address: 10.1.0.1, labels: {app: web}}"
	strict := xdstest.Object("PeerAuthentication", "default", "{mtls: {mode: STRICT}}")
	for name, c := range map[string]struct {
		mesh               []string
		bare               bool // the client has no certificate
		tls, outcome, says string
		plaintext          string // why
	}{
		"a label and no policy": {mesh: []string{entry(mutual)}, tls: as + "spiffe://cluster.local/ns/default/sa/web", outcome: "Forwarded"},
		"no account":            {mesh: []string{entry("{address: 10.1.0.1, labels: {app: web, security.istio.io/tlsMode: istio}}")}, tls: as + "spiffe://cluster.local/*", outcome: "Forwarded"},
		"one of two": {mesh: []string{entry(mutual + ", {address: 10.1.0.5}")}, outcome: "Forwarded",
			tls: as + "spiffe://cluster.local/ns/default/sa/web, for 1 of 2 endpoints: the others have no label security.istio.io/tlsMode: istio, or a PeerAuthentication disables it"},
		"STRICT":                                 {mesh: []string{entry(mutual), strict}, tls: as + "spiffe://cluster.local/ns/default/sa/web", outcome: "Forwarded"},
		"STRICT, no label":                       {plaintext: "no endpoint has the label", mesh: []string{entry(plain), strict}, outcome: "Fails", says: "peerauthentication/default/default demands mutual TLS, and the client begins in plaintext"},
		"STRICT, a client without a certificate": {plaintext: "the proxy has no certificate of the mesh", mesh: []string{entry(mutual), strict}, bare: true, outcome: "Fails", says: "the client begins in plaintext"},
		"DISABLE":                                {plaintext: "or a PeerAuthentication disables it", mesh: []string{entry(mutual), xdstest.Object("PeerAuthentication", "default", "{mtls: {mode: DISABLE}}")}, outcome: "Forwarded"},
		"a service outside":                      {plaintext: "the service is outside the mesh", outcome: "Forwarded", mesh: []string{strings.Replace(entry(mutual), "MESH_INTERNAL", "MESH_EXTERNAL", 1)}},
		"STRICT, and a rule that disables it":    {plaintext: "a DestinationRule says so", mesh: []string{entry(mutual), strict, xdstest.Object("DestinationRule", "web", "{host: web.test, trafficPolicy: {tls: {mode: DISABLE}}}")}, outcome: "Fails", says: "begins in plaintext"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := connected{xdstest.NewWorld(t, c.mesh...), []*discovery.Proxy{
				xdstest.Node{IP: "10.1.0.8", Certified: !c.bare, Interception: discovery.InterceptionRedirect}.Proxy(t),
				xdstest.Node{IP: "10.1.0.1", Certified: true, Interception: discovery.InterceptionRedirect, Labels: map[string]string{"app": "web"}}.Proxy(t),
			}}
			e, err := explained(t, m, "from=10.1.0.8&to=web.test:80")
			if err != nil || len(e.Destinations) != 1 {
				t.Fatalf("%+v, %v", e, err)
			}
			if d := e.Destinations[0]; d.TLS != c.tls && !(c.outcome == "Fails") || e.Outcome != c.outcome || !strings.Contains(e.Reason, c.says) {
				t.Errorf("%q, %s: %s", d.TLS, e.Outcome, e.Reason)
			}
			if d := e.Destinations[0]; (d.Plaintext == "") != (c.plaintext == "") || !strings.Contains(d.Plaintext, c.plaintext) {
				t.Errorf("plaintext: %q", d.Plaintext)
			}
		})
	}
}

// TestExplainTLSOfClients: TLS that a client begins and the proxy passes on is no plaintext.
func TestExplainTLSOfClients(t *testing.T) {
	t.Parallel()
	w := xdstest.NewWorld(t, xdstest.Object("ServiceEntry", "bank", "{hosts: [bank.test], location: MESH_INTERNAL, resolution: STATIC, addresses: [10.9.0.1], ports: [{number: 443, name: tls, protocol: TLS}, {number: 90, name: tcp, protocol: TCP}], endpoints: [{address: 10.1.0.1}]}"))
	m := connected{w, []*discovery.Proxy{xdstest.Node{IP: "10.1.0.8", Certified: true, Interception: discovery.InterceptionRedirect}.Proxy(t)}}
	for parameters, want := range map[string]string{
		"from=10.1.0.8&to=bank.test:443&sni=bank.test": "by the client, whose TLS is passed on|",
		"from=10.1.0.8&to=bank.test:90":                "|no endpoint has the label",
	} {
		e, err := explained(t, m, parameters)
		if err != nil || len(e.Destinations) != 1 {
			t.Fatalf("%s: %+v, %v", parameters, e, err)
		}
		if got := e.Destinations[0].TLS + "|" + e.Destinations[0].Plaintext; !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q", parameters, got)
		}
	}
}

package explain_test

import (
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
	check("from=10.1.0.8&to=bank.test:82", "over TLS (ISTIO_MUTUAL) as outbound_.82_._.bank.test", "it must be encrypted, and is sent nowhere: the proxy has no certificate of the mesh")
	check("from=10.1.0.8&to=bank.test:83", mutual, "it must be encrypted, and is sent nowhere: no certificate with its key is stored as secret bank in the namespace of the proxy; no certificate of an authority is stored as secret bank or bank-cacert in the namespace of the proxy")
	check("from=10.1.0.8&to=bank.test:84", "", "")
	check("from=10.1.0.7&to=bank.test:80", "over TLS (SIMPLE) as the host of the request", "its rule asks for TLS, which gRPC clients are not given: they get no endpoint")
	w.PutSecret("shop/bank", secret.TLSCert, secret.TLSKey, secret.TLSAuthority)
	check("from=10.1.0.8&to=bank.test:83", mutual, "")
}

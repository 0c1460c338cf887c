package integration

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/storage/secret/secrettest"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// issued returns a certificate for a name, signed by an authority.
func issued(t testing.TB, by secrettest.Pair, name string) secrettest.Pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, by.Parsed, key.Public(), by.Private)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return secrettest.Pair{
		Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), Key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
	}
}

// serverOf returns the TLS settings of a server.
func serverOf(t testing.TB, pair secrettest.Pair) *tls.Config {
	t.Helper()
	certificate, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"h2", "http/1.1"}} //nolint:gosec // tests of versions set one
}

// tlsUpstream runs an HTTP server with TLS until the test ends. It answers with its name, or
// with the name in the client's certificate, and with the request's SNI.
func tlsUpstream(t testing.TB, name string, config *tls.Config) int {
	t.Helper()
	l := listen(t)
	server := &http.Server{ErrorLog: log.New(io.Discard, "", 0), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := echo{Upstream: name, Host: r.Host, Proto: r.Proto, Path: r.TLS.ServerName}
		if certificates := r.TLS.PeerCertificates; len(certificates) > 0 {
			answer.Upstream = certificates[0].Subject.CommonName
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer)
	})}
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	server.Protocols = protocols
	var running sync.WaitGroup
	running.Go(func() { _ = server.Serve(tls.NewListener(l, config)) })
	t.Cleanup(func() {
		_ = server.Close()
		running.Wait()
	})
	return portAt(l)
}

// tlsEntry is a service outside the mesh on a port of the machine. protocol is what its clients
// speak.
func tlsEntry(name string, port int, protocol string, target int) string {
	return fill(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: $name, namespace: shop}
spec:
  hosts: [$name.shop.test]
  location: MESH_EXTERNAL
  resolution: STATIC
  ports: [{number: $port, name: port, protocol: $protocol, targetPort: $target}]
  endpoints: [{address: 127.0.0.1}]
`, "$name", name, "$port", port, "$protocol", protocol, "$target", target)
}

// tlsRule is a rule of such a service, with TLS settings and more.
func tlsRule(name, settings, more string) string {
	return fill(`
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: $name, namespace: shop}
spec: {host: $name.shop.test, $more trafficPolicy: {connectionPool: {http: {maxRequestsPerConnection: 1}}, tls: $settings}}
`, "$name", name, "$more", more, "$settings", settings)
}

// credential is a secret with some data.
func credential(name string, data map[string][]byte) string {
	out := fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: %s, namespace: shop}\ndata:\n", name)
	for key, value := range data {
		out += fmt.Sprintf("  %s: %s\n", key, base64.StdEncoding.EncodeToString(value))
	}
	return out
}

// awaitFailure waits until requests fail for a reason, which is a TLS counter of the cluster.
func awaitFailure(t testing.TB, client *envoy, q request, reason string) {
	t.Helper()
	eventually(t, q.host+" fails: "+reason, func() error {
		got := send(t, q)
		stats, err := client.stats(`cluster\.outbound.*` + strings.ReplaceAll(q.host, ".", `\.`) + `.*ssl\.`)
		if err != nil {
			return err
		}
		count := 0
		for name, n := range stats {
			if strings.HasSuffix(name, "ssl."+reason) {
				count += n
			}
		}
		if got.status != http.StatusServiceUnavailable || count == 0 {
			return fmt.Errorf("it answers %s: %s; %v", got, got.body, stats)
		}
		return nil
	})
}

// TestEnvoyOriginatesTLS: a sidecar encrypts what applications send in plaintext. It verifies
// servers by files, by the authorities of the machine, by a secret, or not at all. Failures
// must have the right reason.
func TestEnvoyOriginatesTLS(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s := startServer(t, serverOptions{})
		root, other := secrettest.New(t, time.Hour, "root"), secrettest.New(t, time.Hour, "other root")
		ca, wrong := write(t, "ca.pem", string(root.Cert)), write(t, "wrong.pem", string(other.Cert))
		port, h2, tcp := freePort(t), freePort(t), freePort(t)
		var documents []string
		add := func(name string, of *tls.Config, settings string) {
			documents = append(documents, tlsEntry(name, port, "HTTP", tlsUpstream(t, name, of)), tlsRule(name, settings, ""))
		}
		of := func(name string) *tls.Config { return serverOf(t, issued(t, root, name+".shop.test")) }
		old, new12, new13 := of("old"), of("v12"), of("v13")
		old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
		new12.MaxVersion, new13.MinVersion = tls.VersionTLS12, tls.VersionTLS13
		file := "{mode: SIMPLE, caCertificates: " + ca + "}"
		add("files", of("files"), file)
		add("system", of("system"), "{mode: SIMPLE}")
		add("wrongroot", of("wrongroot"), "{mode: SIMPLE, caCertificates: "+wrong+"}")
		add("wrongname", of("another"), file)
		add("named", of("another"), "{mode: SIMPLE, caCertificates: "+ca+", sni: sni.shop.test, subjectAltNames: [another.shop.test]}")
		add("misnamed", of("misnamed"), "{mode: SIMPLE, caCertificates: "+ca+", subjectAltNames: [another.shop.test]}")
		add("blind", of("another"), "{mode: SIMPLE, insecureSkipVerify: true}")
		add("old", old, file)
		add("v12", new12, file)
		add("v13", new13, file)
		client := of("files")
		client.ClientAuth = tls.RequireAnyClientCert
		add("nocert", client, file)
		mine := issued(t, root, "client-file")
		cert, key := write(t, "client.pem", string(mine.Cert)), write(t, "client.key", string(mine.Key))
		both := of("mutual")
		both.ClientAuth = tls.RequireAnyClientCert
		add("mutual", both, fmt.Sprintf("{mode: MUTUAL, caCertificates: %s, clientCertificate: %s, privateKey: %s}", ca, cert, key))
		greeter := serverOf(t, issued(t, root, "db.shop.test"))
		ledger := serveTCP(t, tls.NewListener(listen(t), greeter), func(c net.Conn) {
			fmt.Fprintln(c, "db "+serverNameOf(c))
			_, _ = io.Copy(c, c)
		})
		s.apply(append(documents,
			tlsEntry("h2", h2, "HTTP2", tlsUpstream(t, "h2", of("h2"))), tlsRule("h2", file, ""),
			tlsEntry("db", tcp, "TCP", ledger), tlsRule("db", "{mode: SIMPLE, caCertificates: "+ca+", sni: db.shop.test, subjectAltNames: [db.shop.test]}", ""))...)
		e := s.startEnvoy(envoyOptions{kind: "sidecar", name: "client", variant: v, systemRoots: ca})
		at := func(name string) request { return request{port: port, host: name + ".shop.test"} }
		for _, name := range []string{"files", "system", "named", "blind", "v12", "v13"} {
			awaitReply(t, at(name), name)
		}
		awaitReply(t, at("mutual"), "client-file")
		for name, sni := range map[string]string{"files": "files.shop.test", "named": "sni.shop.test"} {
			if got := send(t, at(name)); got.echo.Path != sni || got.echo.Proto != "HTTP/1.1" {
				t.Errorf("%s was asked for %q in %s, want %s", name, got.echo.Path, got.echo.Proto, sni)
			}
		}
		awaitReply(t, request{port: h2, host: "h2.shop.test"}, "h2")
		if got := send(t, request{port: h2, host: "h2.shop.test"}); got.echo.Proto != "HTTP/2.0" {
			t.Errorf("h2 was spoken to in %s", got.echo.Proto)
		}
		awaitGreeting(t, tcp, "db db.shop.test")
		awaitFailure(t, e, at("wrongroot"), "fail_verify_error")
		awaitFailure(t, e, at("wrongname"), "fail_verify_san")
		awaitFailure(t, e, at("misnamed"), "fail_verify_san")
		awaitFailure(t, e, at("old"), "connection_error")
		awaitReply(t, at("nocert"), "503")
		s.expectNothingRejected()
		e.expectNothingRejected()
	})
}

// serverNameOf returns the SNI of a TLS connection's client.
func serverNameOf(c net.Conn) string {
	conn, ok := c.(*tls.Conn)
	if !ok || conn.Handshake() != nil {
		return "?"
	}
	return conn.ConnectionState().ServerName
}

// TestEnvoyOriginatesTLSWithSecrets: a sidecar that a rule selects, and an egress gateway, get
// the rule's secret. Without the secret, they send nothing. From then on they use a new
// certificate.
func TestEnvoyOriginatesTLSWithSecrets(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s := startServer(t, serverOptions{})
		root := secrettest.New(t, time.Hour, "root")
		config := serverOf(t, issued(t, root, "bank.shop.test"))
		config.ClientAuth = tls.RequireAnyClientCert
		target, port, gateway := tlsUpstream(t, "bank", config), freePort(t), freePort(t)
		plain := startUpstream(t, "plain") // it must never answer
		const settings = "{mode: MUTUAL, credentialName: bank}"
		selected := tlsRule("bank", settings, "workloadSelector: {matchLabels: {app: client}},")
		unselected := tlsRule("bank", settings, "")
		store := func(name string) string {
			pair := issued(t, root, name)
			return credential("bank", map[string][]byte{"cert": pair.Cert, "key": pair.Key, "cacert": root.Cert})
		}
		s.apply(tlsEntry("bank", port, "HTTP", target), selected, httpEntry("plain", port, plain.endpoint()))
		edge, client := s.startPair(v)
		q := request{port: port, host: "bank.shop.test"}
		awaitReply(t, request{port: port, host: "plain.shop.test"}, "plain")
		awaitReply(t, q, "503")
		s.awaitSynced(s.apply(store("first")), "client")
		awaitReply(t, q, "first")
		before := s.sentResources()
		s.awaitSynced(s.apply(store("second")), "client")
		awaitReply(t, q, "second")
		if sent := nonzero(less(s.sentResources(), before)); len(sent) != 1 {
			t.Errorf("a certificate was replaced, and sent was %v", sent)
		}
		s.awaitSynced(s.remove(credential("bank", nil)), "client")
		awaitReply(t, q, "503")

		// Without a selector only gateways get the secret: the sidecar uses a gateway.
		s.awaitSynced(s.apply(unselected, store("third")), "client", "edge")
		awaitReply(t, q, "503")
		s.awaitSynced(s.apply(httpEntry("egress", 15443, fmt.Sprintf("{address: 127.0.0.1, ports: {http: %d}}", gateway)), fill(`
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: egress, namespace: shop}
spec: {selector: {app: edge}, servers: [{port: {number: $gateway, name: http, protocol: HTTP}, hosts: [bank.shop.test]}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: bank, namespace: shop}
spec:
  hosts: [bank.shop.test]
  gateways: [mesh, egress]
  http:
  - {match: [{gateways: [mesh]}], route: [{destination: {host: egress.shop.test}}]}
  - {match: [{gateways: [egress]}], route: [{destination: {host: bank.shop.test}}]}
`, "$gateway", gateway)), "client", "edge")
		awaitReply(t, q, "third")
		s.expectNothingRejected()
		client.expectNothingRejected()
		edge.expectNothingRejected()
	})
}

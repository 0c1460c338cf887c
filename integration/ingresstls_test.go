package integration

import (
	"crypto/tls"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/storage/secret/secrettest"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// TestEnvoySidecarEndsTLS: ingress listeners of a sidecar terminate TLS for its application,
// with certificates in files: for HTTP and for bytes, with and without client certificates. The
// application gets plaintext, and the client's certificate.
func TestEnvoySidecarEndsTLS(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, of, stranger := startServer(t, serverOptions{}), newAuthority(t, "authority"), newAuthority(t, "stranger")
		app, ledger := startUpstream(t, "app"), startTCPUpstream(t, "ledger")
		pair, mine, wrong := of.issue(time.Hour, "app.shop.test"), of.issue(time.Hour, "client"), stranger.issue(time.Hour, "client")
		files := newCertificateFiles(t, pair, of)
		simple, mutual, bytes := freePort(t), freePort(t), freePort(t)
		ingress := func(port int, protocol string, to int, mode, more string) string {
			return fmt.Sprintf("\n  - {port: {number: %d, protocol: %s, name: p%d}, bind: 127.0.0.1, defaultEndpoint: '127.0.0.1:%d', tls: {mode: %s, serverCertificate: %s, privateKey: %s%s}}",
				port, protocol, port, to, mode, files.chain, files.key, more)
		}
		clients := ", caCertificates: " + files.roots
		s.apply(fill(`
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: app, namespace: shop}
spec:
  workloadSelector: {labels: {app: app}}
  ingress: $ingress
  egress: [{hosts: ["./*"]}]
`, "$ingress", ingress(simple, "HTTPS", app.port, "SIMPLE", ", minProtocolVersion: TLSV1_3")+ingress(mutual, "HTTP", app.port, "MUTUAL", clients)+ingress(bytes, "TLS", ledger, "OPTIONAL_MUTUAL", clients)))
		sidecar := s.startEnvoy(envoyOptions{kind: "sidecar", name: "app", labels: "app=app", variant: v})
		call := func(port int, client *secrettest.Pair) tlsCall {
			return tlsCall{port: port, name: "app.shop.test", of: of, client: client, http1: true}
		}
		old := call(simple, nil)
		old.max = tls.VersionTLS12
		eventually(t, "the application is served", func() error {
			_, err := call(simple, nil).get(t.Context())
			return err
		})
		for what, c := range map[string]struct {
			call tlsCall
			want string // part of the response
		}{
			"SIMPLE": {call(simple, nil), `"app"`},
			"MUTUAL": {call(mutual, &mine), `CN=client`},
		} {
			if got, err := c.call.get(t.Context()); err != nil || !strings.Contains(got.body, c.want) {
				t.Errorf("%s: %q, %v, want %s", what, got.body, err, c.want)
			}
		}
		for what, c := range map[string]struct {
			call tlsCall
			want string // part of the server's alert
		}{
			"a version that is too old":    {old, "protocol version not supported"},
			"MUTUAL without a certificate": {call(mutual, nil), "certificate required"},
			"MUTUAL, of another authority": {call(mutual, &wrong), "unknown certificate authority"},
			"OPTIONAL_MUTUAL, of another":  {call(bytes, &wrong), "unknown certificate authority"},
		} {
			if err := c.call.refusal(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: the refusal is %v, want %s", what, err, c.want)
			}
		}
		if got, err := do(t.Context(), clientOf(t), request{port: simple, host: "app.shop.test"}); err == nil {
			t.Errorf("plaintext is answered: %s", got)
		}
		conn, err := newTLSClient(bytes, "app.shop.test", of.pair).dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		_ = conn.SetDeadline(time.Now().Add(patience))
		line := make([]byte, len("ledger"))
		if n, err := conn.Read(line); err != nil || string(line[:n]) != "ledger" {
			t.Errorf("bytes lead to %q: %v", line[:n], err)
		}
		renewed := of.issue(time.Hour, "app.shop.test")
		files.replace(t, renewed)
		newTLSClient(simple, "app.shop.test", of.pair).awaitCertificate(t, renewed)
		s.expectNothingRejected()
		sidecar.expectNothingRejected()
	})
}

package integration

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// TestEncryptBetweenServicesPage applies the objects of docs/tasks/encrypt-between-services.md,
// with the addresses of this machine, for two sidecars with certificates of the mesh. Requests
// arrive over mutual TLS. The policy refuses plaintext, and a client a server of another account.
func TestEncryptBetweenServicesPage(t *testing.T) {
	t.Parallel()
	app, service, inbound := startUpstream(t, "app"), freePort(t), freePort(t)
	here := strings.NewReplacer(
		"  ingress:\n", "  egress: [{hosts: [./none.shop.example]}]\n  ingress:\n", // both sidecars are on this machine
		"10.0.0.12", "127.0.0.1", "127.0.0.1:8000", fmt.Sprintf("127.0.0.1:%d", app.port), "number: 80,", fmt.Sprintf("number: %d,", service),
		"targetPort: 9443", fmt.Sprintf("targetPort: %d", inbound), "- port: {number: 9443,", fmt.Sprintf("- bind: 127.0.0.1\n    port: {number: %d,", inbound),
	)
	objects := pageObjects(t, "encrypt-between-services.md", 3, here)
	s := startServer(t, serverOptions{dataDir: filepath.Join(t.TempDir(), "data"), args: []string{"--secure-xds-address", "127.0.0.1:0"}})
	certified := func(account string) *certificateFiles {
		dir := filepath.Join(t.TempDir(), account)
		s.must("", "certificate", "request", "--out", dir, "--token", strings.TrimSpace(s.must("", "token", "create", "-n", "shop", "--service-account", account)))
		return &certificateFiles{chain: filepath.Join(dir, "cert-chain.pem"), key: filepath.Join(dir, "key.pem"), roots: filepath.Join(dir, "root-cert.pem")}
	}
	s.apply(objects[:2]...)
	server := s.startEnvoy(envoyOptions{kind: "sidecar", name: "ratings", labels: "app=ratings", ip: "10.0.0.12", variant: protocol.Delta, certificate: certified("ratings")})
	client := s.startEnvoy(envoyOptions{kind: "sidecar", name: "client", labels: "app=client", ip: "10.0.0.2", variant: protocol.Delta, certificate: certified("web")})
	q := request{port: service, host: "ratings.shop.example"}
	awaitReply(t, q, "app")
	if header := send(t, q).echo.Header.Get("X-Forwarded-Client-Cert"); !strings.Contains(header, "spiffe://cluster.local/ns/shop/sa/web") {
		t.Errorf("the server saw the client certificate %q", header)
	}
	plaintext := request{port: inbound, host: "ratings.shop.example"}
	awaitReply(t, plaintext, "app")

	s.must(objects[2], "apply", "-f", "-", "--wait")
	awaitReply(t, q, "app")
	if got, err := do(t.Context(), clientOf(t), plaintext); err == nil {
		t.Errorf("plaintext is answered: %s", got)
	}
	foreseen := s.try(strings.Replace(objects[2], "STRICT", "DISABLE", 1), "apply", "-f", "-", "--dry-run=server")
	expectOutcome(t, "a dry run of DISABLE", foreseen, 0, "Concerned: 2 of 2 proxies: ratings.shop, client.shop. Modes of shop change in phases")
	for _, warning := range []string{"clients send plaintext where they encrypted: 127.0.0.1:", "plaintext is taken where it was refused: 127.0.0.1:", "(PTL0369)"} {
		if !strings.Contains(foreseen.stderr, warning) {
			t.Errorf("a dry run of DISABLE does not warn %q:\n%s", warning, foreseen.stderr)
		}
	}
	other := strings.Replace(objects[1], "serviceAccount: ratings", "serviceAccount: payments", 1)
	s.awaitSynced(s.apply(other), "client", "ratings")
	awaitReply(t, q, "503")
	server.expectNothingRejected()
	client.expectNothingRejected()
}

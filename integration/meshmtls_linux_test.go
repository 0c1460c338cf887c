package integration

import (
	"crypto/tls"
	"fmt"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/discovery/identity/secure/securetest"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// TestEnvoyMeshMTLS: a sidecar refuses a client of the mesh whose TLS is below the minimum of
// meshMTLS, or has none of its cipher suites. Other sidecars go on, and so does plaintext, which
// the mode decides.
func TestEnvoyMeshMTLS(t *testing.T) {
	t.Parallel()
	const aes, chacha = tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
	clients := map[string]func(*tls.Config){
		"TLS 1.1":           func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS11, tls.VersionTLS11 },
		"TLS 1.2":           func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 },
		"TLS 1.2, AES":      func(c *tls.Config) { c.MaxVersion, c.CipherSuites = tls.VersionTLS12, []uint16{aes} },
		"TLS 1.2, ChaCha20": func(c *tls.Config) { c.MaxVersion, c.CipherSuites = tls.VersionTLS12, []uint16{chacha} },
		"TLS 1.3":           func(c *tls.Config) { c.MinVersion = tls.VersionTLS13 },
	}
	const version, handshake = "remote error: tls: protocol version not supported", "remote error: tls: handshake failure"
	for settings, refused := range map[string]map[string]string{
		"{}": {"TLS 1.1": version, "TLS 1.2, ChaCha20": handshake},
		"{minProtocolVersion: TLSV1_3}": {
			"TLS 1.1": version, "TLS 1.2": version, "TLS 1.2, AES": version, "TLS 1.2, ChaCha20": version},
		"{cipherSuites: [ECDHE-ECDSA-CHACHA20-POLY1305]}": {"TLS 1.1": version, "TLS 1.2, AES": handshake},
	} {
		t.Run(settings, func(t *testing.T) {
			m := newPeerMesh(t, serverOptions{meshConfig: "meshMTLS: " + settings})
			m.apply(peerMode("PERMISSIVE"))
			in, out := m.sidecars(protocol.Delta, identified(t, m.of, shopAccounts+"app"), identified(t, m.of, shopAccounts+"client"))
			own := securetest.TLS(m.of.Issue(t, securetest.Leaf{Identity: shopAccounts + "direct"}))
			for name, change := range clients {
				direct := claimant{m.client.mutual(t, own, change), "https://10.0.0.1:8080/"}
				eventually(t, name, func() error {
					shown, err := direct.shows(t.Context(), "")
					want := refused[name]
					switch {
					case want == "" && (err != nil || shown == ""):
						return fmt.Errorf("it is not taken: %q, %w", shown, err)
					case want != "" && (err == nil || !strings.HasSuffix(err.Error(), want)):
						return fmt.Errorf("it gets %q, %w, want %s", shown, err, want)
					}
					return nil
				})
			}
			if counted, err := in.stats(`ssl\.connection_error$`); err != nil || len(nonzero(counted)) == 0 {
				t.Errorf("what was refused is counted as %v, %v", counted, err)
			}
			if got, err := m.through(80, "/"); err != nil || got.String() != "http" || got.echo.Header.Get("X-Forwarded-Client-Cert") == "" {
				t.Errorf("two sidecars: %s, %v, %v", got, got.echo.Header, err)
			}
			if err := m.bare(8080); err != nil {
				t.Errorf("in plaintext: %v", err)
			}
			m.expectNothingRejected()
			in.expectNothingRejected()
			out.expectNothingRejected()
		})
	}
}

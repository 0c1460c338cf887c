package enroll_test

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan/enroll"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/call"
	"github.com/portolan-mesh/portolan/discovery/identity/certificate"
)

// TestAnUntrustedServerIsExplained: a machine whose server has another root is told which roots it
// knows, what the server presents and what to do, by a call and by a TLS connection of its own.
func TestAnUntrustedServerIsExplained(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	issuer := newIssuer(t, 0)
	if err := os.WriteFile(filepath.Join(dir, enroll.RootsFile), []byte(inPEM(issuer.root.Raw)), 0o600); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(issuer.root.Raw)
	check := func(what string, err error) {
		t.Helper()
		for _, want := range []string{enroll.RootsFile + " has those with sha256 " + hex.EncodeToString(sum[:]), `the certificate is that of "O=Acme Co", by the issuer "O=Acme Co"`, "join the machine again by a new invitation"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", what, err, want)
			}
		}
		if err != nil && strings.Contains(err.Error(), "--ca") {
			t.Errorf("%s names a flag of another program: %v", what, err)
		}
	}
	_, err := enroll.Servers{URLs: []string{server.URL}, Dir: dir}.Ask(t.Context(), certificate.Request{}, nil)
	check("a call", err)
	var unreachable *call.UnreachableError
	if !errors.As(err, &unreachable) {
		t.Errorf("the next server is not asked after %v", err)
	}
	trust := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool()}
	trust.RootCAs.AddCert(issuer.root)
	_, err = tls.Dial("tcp", server.Listener.Addr().String(), trust)
	check("a connection", enroll.ExplainUntrusted(dir, err))
	if err := errors.New("away"); enroll.ExplainUntrusted(dir, err) != err {
		t.Error("another error is changed")
	}
}

package main

import (
	"crypto/tls"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/discovery/identity/secure/securetest"
)

// TestCredentialsBesideASecret: a certificate to be stored is not the user's own, which comes
// from the environment or a context. A user without one is told so.
func TestCredentialsBesideASecret(t *testing.T) {
	authority := securetest.New(t, "authority")
	files := authority.Write(t, t.TempDir(), authority.Issue(t, securetest.Leaf{Names: []string{"ann"}}))
	var shown []string
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who := "nobody"
		if len(r.TLS.PeerCertificates) > 0 {
			who = "somebody"
		}
		shown = append(shown, who)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Unauthorized","code":401,"message":"who are you"}`))
	}))
	server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	server.StartTLS()
	defer server.Close()
	ca := filepath.Join(t.TempDir(), "server.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PORTOLAN_CONFIG", filepath.Join(t.TempDir(), "contexts.yaml"))
	store := []string{"secret", "tls", "shop", "--cert", files.Cert, "--key", files.Key, "--ca", files.CA}
	const hint = "(--ca, --cert, --key of portolan secret tls are not about the server and you: give these by PORTOLAN_CA, PORTOLAN_CERT, PORTOLAN_KEY, or by a context)"
	if o := do(t, "", append(store, "--server", server.URL)...); o.Code != exit.Unreachable || !strings.Contains(o.Err, "is of no authority that is trusted here") || !strings.Contains(o.Err, hint) {
		t.Errorf("a server that is not trusted: %+v", o)
	}
	t.Setenv("PORTOLAN_CA", ca)
	if o := do(t, "", append(store, "--server", server.URL)...); o.Code != exit.Forbidden || !strings.Contains(o.Err, "who are you "+hint) {
		t.Errorf("nobody: %+v", o)
	}
	if o := do(t, "", "get", "vs", "--server", server.URL); o.Code != exit.Forbidden || strings.Contains(o.Err, "are not about") {
		t.Errorf("another command: %+v", o)
	}
	t.Setenv("PORTOLAN_CERT", files.Cert)
	t.Setenv("PORTOLAN_KEY", files.Key)
	do(t, "", append(store, "--server", server.URL)...)
	t.Setenv("PORTOLAN_CA", "")
	t.Setenv("PORTOLAN_CERT", "")
	t.Setenv("PORTOLAN_KEY", "")
	do(t, "", "config", "set-context", "prod", "--server", server.URL, "--ca", ca, "--cert", files.Cert, "--key", files.Key)
	do(t, "", store...)
	if got := strings.Join(shown, " "); got != "nobody nobody somebody somebody" {
		t.Errorf("the server saw %s", got)
	}
	if out := do(t, "", "secret", "tls", "--help").Out; !strings.Contains(out, "come from PORTOLAN_CERT, PORTOLAN_KEY and PORTOLAN_CA here, or from a context") {
		t.Errorf("help: %s", out)
	}
}

// Package kubetest runs a config API as the API server of a cluster, and does harm to
// it: it is a small real API in the shape of Kubernetes.
package kubetest

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/resttest"
)

// API is an API server. It ends with the test.
type API struct {
	// Server is the API itself, without harm.
	*resttest.Server
	// Kubeconfig is the path of a kubeconfig, with the context "test".
	Kubeconfig string

	address string
	certs   []tls.Certificate
	ca      string

	mu      sync.Mutex // guards the fields below
	server  *http.Server
	serving sync.WaitGroup
	harm    func(w http.ResponseWriter, r *http.Request) bool
	token   string
	calls   []string
}

// Start starts an API server.
func Start(t testing.TB) *API {
	t.Helper()
	own := httptest.NewTLSServer(nil)
	own.Close()
	a := &API{
		Server: resttest.Start(t, 0, nil), Kubeconfig: filepath.Join(t.TempDir(), "kubeconfig"), address: "127.0.0.1:0", certs: own.TLS.Certificates,
		ca: base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: own.Certificate().Raw})),
	}
	a.Up(t)
	a.WriteKubeconfig(t, "secret-of-the-test")
	t.Cleanup(a.Down)
	return a
}

// WriteKubeconfig writes the kubeconfig with a token, which the server demands from now on.
func (a *API) WriteKubeconfig(t testing.TB, token string) {
	t.Helper()
	a.Demand(token)
	if err := os.WriteFile(a.Kubeconfig, []byte(a.Content(token)), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Content returns the content of a kubeconfig with a token.
func (a *API) Content(token string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: test
contexts: [{name: test, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://%s", certificate-authority-data: %s}}]
users: [{name: u, user: {token: %q}}]
`, a.address, a.ca, token)
}

// Demand sets the token that requests must have; empty is none.
func (a *API) Demand(token string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.token = token
}

// Up makes the server listen, at the address that it had.
func (a *API) Up(t testing.TB) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", a.address)
	if err != nil {
		t.Fatal(err)
	}
	a.address = listener.Addr().String()
	server := &http.Server{
		Handler: http.HandlerFunc(a.serve), ReadHeaderTimeout: time.Minute, TLSConfig: &tls.Config{Certificates: a.certs}, //nolint:gosec // 1.2 is the least
		ErrorLog: log.New(io.Discard, "", 0),
	}
	a.mu.Lock()
	a.server = server
	a.mu.Unlock()
	a.serving.Go(func() { _ = server.ServeTLS(listener, "", "") })
}

// Down ends the server and its connections. What is written meanwhile stays.
func (a *API) Down() {
	a.mu.Lock()
	server := a.server
	a.server = nil
	a.mu.Unlock()
	if server != nil {
		_ = server.Close()
	}
	a.serving.Wait()
}

// Cut ends all connections, and so all watches.
func (a *API) Cut(t testing.TB) {
	t.Helper()
	a.Down()
	a.Up(t)
}

// Harm has a function see each request first, from now on; nil ends it. It returns
// whether it has answered.
func (a *API) Harm(harm func(w http.ResponseWriter, r *http.Request) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.harm = harm
}

// Calls returns the requests since the last call: verb and path, as "watch /api/v1/pods".
func (a *API) Calls() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := a.calls
	a.calls = nil
	return out
}

func (a *API) serve(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	harm, token := a.harm, a.token
	a.calls = append(a.calls, Verb(r)+" "+r.URL.Path)
	a.mu.Unlock()
	switch {
	case token != "" && r.Header.Get("Authorization") != "Bearer "+token:
		Refuse(w, http.StatusUnauthorized, "Unauthorized", "Unauthorized")
	case harm == nil || !harm(w, r):
		r.Header.Del("Authorization") // the API has no access rules
		a.REST.Handler().ServeHTTP(w, r)
	}
}

// Verb returns the verb of a request.
func Verb(r *http.Request) string {
	switch {
	case r.Method != http.MethodGet:
		return strings.ToLower(r.Method)
	case r.URL.Query().Get("watch") != "":
		return "watch"
	}
	return "get"
}

// Refuse answers with a Status.
func Refuse(w http.ResponseWriter, code int, reason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":%q,"reason":%q,"code":%d}`, message, reason, code)
}

// Hang has requests wait until they are given up.
func Hang(_ http.ResponseWriter, r *http.Request) bool {
	<-r.Context().Done()
	return true
}

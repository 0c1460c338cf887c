package credentials_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/credentials"
	"github.com/portolan-mesh/portolan/discovery/access"
	"github.com/portolan-mesh/portolan/discovery/identity"
	"github.com/portolan-mesh/portolan/discovery/identity/authority"
	"github.com/portolan-mesh/portolan/discovery/identity/authority/authoritytest"
	"github.com/portolan-mesh/portolan/discovery/identity/certificate"
	"github.com/portolan-mesh/portolan/discovery/identity/issue"
	"github.com/portolan-mesh/portolan/discovery/identity/journal"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
)

var web = authoritytest.Workload("shop", "web")

type issuing struct {
	*authoritytest.Mesh
	authority *authority.Authority
	issuer    *issue.Issuer
}

func startIssuing(t *testing.T) *issuing {
	t.Helper()
	w := &issuing{Mesh: authoritytest.Start(t)}
	w.authority = w.Server(t)
	var err error
	if w.issuer, err = issue.New(issue.Options{Authority: w.authority, Proofs: identity.Proofs{webToken{}}}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- journal.New(unread{}, nil, w.issuer.Issued()).Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return w
}

// webToken is a Proof that knows one credential.
type webToken struct{}

func (webToken) Prove(_ context.Context, credential string, _ netip.Addr) (identity.Identity, error) {
	switch credential {
	case "throttled":
		return identity.Identity{}, identity.ErrThrottled
	case "web-token":
		return web, nil
	}
	return identity.Identity{}, identity.ErrUnproven
}

// unread is a history that nobody reads.
type unread struct{}

func (unread) Note(context.Context, time.Time, storage.Origin, []config.Key) error { return nil }

// api serves a config API with the issuer: secure over TLS, bare without TLS and as if called
// from another machine.
func (w *issuing) api(t *testing.T) (secure, bare *httptest.Server) {
	t.Helper()
	api, err := rest.New(rest.Options{Store: w.Store, Cache: w.Cache, Authenticator: nobody{}, Hosts: []string{"portolan.example"}})
	if err != nil {
		t.Fatal(err)
	}
	credentials.Certificates(api, w.issuer)
	secure = httptest.NewUnstartedServer(api.Handler())
	secure.Listener = tls.NewListener(secure.Listener, &tls.Config{ClientAuth: tls.RequestClientCert, GetCertificate: w.authority.ServerCertificate("127.0.0.1")})
	secure.Start()
	secure.URL = strings.Replace(secure.URL, "http:", "https:", 1)
	bare = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		r.RemoteAddr = "192.0.2.1:1"
		api.Handler().ServeHTTP(rw, r)
	}))
	t.Cleanup(func() {
		secure.Close()
		bare.Close()
	})
	return secure, bare
}

// nobody is an Authenticator that knows no user; the certificate path must not call it.
type nobody struct{}

func (nobody) Authenticate(*http.Request) (access.Identity, error) {
	return access.Identity{}, errors.New("no user")
}

func TestCertificates(t *testing.T) {
	t.Parallel()
	w := startIssuing(t)
	secure, bare := w.api(t)
	key := authoritytest.Key(t)
	body := func(csr []byte, ttl string) string {
		text, err := json.Marshal(certificate.Request{CSR: string(csr), TTL: ttl})
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	mine, _ := authoritytest.Issue(t, w.authority, web, time.Hour)
	roots, err := w.authority.Roots()
	if err != nil {
		t.Fatal(err)
	}
	do := func(server *httptest.Server, method, body, bearer string, shown ...tls.Certificate) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, server.URL+certificate.Path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		if bearer != "" {
			r.Header.Set("Authorization", bearer)
		}
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: shown}}
		defer transport.CloseIdleConnections()
		response, err := (&http.Client{Transport: transport}).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		var answer json.RawMessage
		if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(answer)
	}
	good := body(authoritytest.CSR(t, key), "")
	for name, c := range map[string]struct {
		server       *httptest.Server
		method, body string
		bearer       string
		shown        []tls.Certificate
		code         int
		want         string
	}{
		"a token":               {secure, "POST", good, "Bearer web-token", nil, 201, `"identity":"` + web.String()},
		"a certificate":         {secure, "POST", good, "", []tls.Certificate{mine}, 201, `"identity":"` + web.String()},
		"for an hour":           {secure, "POST", body(authoritytest.CSR(t, key), "1h"), "Bearer web-token", nil, 201, `"kind":"Certificate"`},
		"nothing":               {secure, "POST", good, "", nil, 401, "prove who you are"},
		"a wrong token":         {secure, "POST", good, "Bearer guess", nil, 401, "proves no identity"},
		"a password":            {secure, "POST", good, "Basic YTpi", nil, 400, "Bearer"},
		"another identity":      {secure, "POST", body(authoritytest.CSR(t, key, "spiffe://cluster.local/ns/shop/sa/admin"), ""), "Bearer web-token", nil, 403, "is for"},
		"no request":            {secure, "POST", body([]byte("x"), ""), "Bearer web-token", nil, 422, "no certificate request"},
		"too many guesses":      {secure, "POST", good, "Bearer throttled", nil, 429, `"retryAfterSeconds":60`},
		"an odd time":           {secure, "POST", body(authoritytest.CSR(t, key), "soon"), "Bearer web-token", nil, 400, "ttl"},
		"fields of others":      {secure, "POST", `{"csr":"","identity":"x"}`, "Bearer web-token", nil, 400, "identity"},
		"another kind":          {secure, "POST", `{"kind":"Pod","csr":""}`, "Bearer web-token", nil, 400, "CertificateRequest"},
		"a megabyte":            {secure, "POST", body(make([]byte, 1<<20), ""), "Bearer web-token", nil, 413, "64 KiB"},
		"a GET":                 {secure, "GET", "", "Bearer web-token", nil, 405, "POST"},
		"without TLS from afar": {bare, "POST", good, "Bearer web-token", nil, 403, "over TLS alone"},
	} {
		if code, text := do(c.server, c.method, c.body, c.bearer, c.shown...); code != c.code || !strings.Contains(text, c.want) || strings.Contains(text, "web-token") {
			t.Errorf("%s: %d %s; want %d %q", name, code, text, c.code, c.want)
		}
	}
	_, text := do(secure, "POST", good, "Bearer web-token")
	var got certificate.Certificate
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode([]byte(got.Chain))
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil || leaf.SerialNumber.Text(16) != got.Serial || !leaf.NotAfter.Equal(got.NotAfter) || !key.Public().(*ecdsa.PublicKey).Equal(leaf.PublicKey) {
		t.Errorf("the answer does not fit its certificate: %+v, %v", got, err)
	}
}

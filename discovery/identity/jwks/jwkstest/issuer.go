// Package jwkstest runs an issuer of JWTs, for tests.
package jwkstest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// Issuer is an issuer with a key, which it serves over TLS at /keys.
type Issuer struct {
	URL, CA string
	// Fetches counts the requests for keys.
	Fetches atomic.Int64

	mu     sync.Mutex // guards what follows
	key    crypto.Signer
	id     string
	answer http.HandlerFunc
	device *Device
}

// New starts an issuer, which ends with the test.
func New(t testing.TB) *Issuer {
	t.Helper()
	i := &Issuer{}
	server := httptest.NewUnstartedServer(i.handler(t))
	server.Config.ErrorLog = nil
	server.StartTLS()
	t.Cleanup(server.Close)
	i.URL = server.URL
	i.CA = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	return i
}

// Plain starts an issuer on this machine that serves its keys without TLS.
func Plain(t testing.TB) *Issuer {
	t.Helper()
	i := &Issuer{}
	server := httptest.NewServer(i.handler(t))
	t.Cleanup(server.Close)
	i.URL = server.URL
	return i
}

// handler gives the issuer its first key, and serves it.
func (i *Issuer) handler(t testing.TB) http.Handler {
	t.Helper()
	i.Rotate(t, "first")
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		document := map[string]string{"issuer": i.URL, "jwks_uri": i.URL + "/keys"}
		if d := i.flow(); d != nil {
			maps.Copy(document, d.endpoints())
		}
		_ = json.NewEncoder(w).Encode(document)
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, r *http.Request) {
		i.Fetches.Add(1)
		i.mu.Lock()
		answer := i.answer
		i.mu.Unlock()
		if answer != nil {
			answer(w, r)
			return
		}
		_, _ = w.Write(i.Set())
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if d := i.flow(); d != nil {
			d.serve(w, r)
			return
		}
		http.NotFound(w, r)
	})
	return mux
}

func (i *Issuer) flow() *Device {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.device
}

// Answer makes a handler answer the requests for keys; nil serves the keys again.
func (i *Issuer) Answer(answer http.HandlerFunc) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.answer = answer
}

// Rotate gives the issuer another key.
func (i *Issuer) Rotate(t testing.TB, id string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.key, i.id = key, id
}

// Public returns the key that the issuer serves.
func (i *Issuer) Public() (key crypto.PublicKey, id string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.key.Public(), i.id
}

// Set returns the JWKS document that the issuer serves.
func (i *Issuer) Set() []byte {
	key, id := i.Public()
	text, _ := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key, KeyID: id, Algorithm: "ES256", Use: "sig"}}})
	return text
}

// Sign makes a token with these claims.
func (i *Issuer) Sign(t testing.TB, claims any) string {
	t.Helper()
	i.mu.Lock()
	defer i.mu.Unlock()
	return SignWith(t, jose.ES256, i.key, i.id, claims)
}

// SignWith makes a token signed with key, under a key id that may be another's.
func SignWith(t testing.TB, algorithm jose.SignatureAlgorithm, key any, id string, claims any) string {
	t.Helper()
	options := (&jose.SignerOptions{}).WithType("JWT")
	if id != "" {
		options = options.WithHeader("kid", id)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: key}, options)
	if err != nil {
		t.Fatal(err)
	}
	token, err := jwt.Signed(signer).Claims(claims).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

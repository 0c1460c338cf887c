package jwkstest

import (
	"crypto/rand"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"
)

// Device is an issuer's device flow (RFC 8628), like that of real providers: a refresh token
// is good once, and using it again ends the login.
type Device struct {
	// Client is the id of the client that may log in.
	Client string

	t      testing.TB
	issuer *Issuer
	mu     sync.Mutex // guards what follows
	answer string     // OAuth error to answer instead of tokens; empty means none
	claims map[string]any
	life   time.Duration
	codes  []string // device codes that were not exchanged for tokens yet
	valid  string   // the refresh token that is valid now
	given  []string // all secrets given out
	count  int
}

// Device adds the device flow for a client. Its ID tokens have these claims and this lifetime.
// Users confirm at once unless Answer says otherwise.
func (i *Issuer) Device(t testing.TB, client string, life time.Duration, claims map[string]any) *Device {
	d := &Device{Client: client, t: t, issuer: i, claims: claims, life: life}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.device = d
	return d
}

// Answer makes the issuer answer with an OAuth error instead of tokens; empty means tokens
// again.
func (d *Device) Answer(code string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.answer = code
}

// Live sets the lifetime of the next ID tokens.
func (d *Device) Live(life time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.life = life
}

// Refreshes returns how often a refresh token was used.
func (d *Device) Refreshes() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.count
}

// LoggedIn says whether the login is still valid.
func (d *Device) LoggedIn() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.valid != ""
}

// Secrets returns the codes and tokens that the client was given.
func (d *Device) Secrets() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]string(nil), d.given...)
}

// endpoints returns the endpoints that the issuer's document lists.
func (d *Device) endpoints() map[string]string {
	return map[string]string{"device_authorization_endpoint": d.issuer.URL + "/device", "token_endpoint": d.issuer.URL + "/token", "revocation_endpoint": d.issuer.URL + "/revoke"}
}

func (d *Device) serve(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	status, body := http.StatusBadRequest, map[string]any{"error": "invalid_client"}
	if r.Method == http.MethodPost && r.ParseForm() == nil && r.PostForm.Get("client_id") == d.Client {
		status, body = d.reply(r.URL.Path, r.PostForm)
	}
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func (d *Device) reply(path string, form url.Values) (int, map[string]any) {
	refused := func(code string) (int, map[string]any) { return http.StatusBadRequest, map[string]any{"error": code} }
	secret := func() string { d.given = append(d.given, rand.Text()); return d.given[len(d.given)-1] }
	switch {
	case path == "/device":
		code := secret()
		d.codes = append(d.codes, code)
		return http.StatusOK, map[string]any{
			"device_code": code, "user_code": "WDJB-MJHT", "verification_uri": d.issuer.URL + "/go", "verification_uri_complete": d.issuer.URL + "/go?code=WDJB-MJHT", "expires_in": 60, "interval": 1,
		}
	case path == "/revoke":
		if form.Get("token") == d.valid {
			d.valid = ""
		}
		return http.StatusOK, nil
	case d.answer != "":
		return refused(d.answer)
	case form.Get("grant_type") == "refresh_token":
		if d.count++; d.valid == "" || form.Get("refresh_token") != d.valid {
			d.valid = ""
			return refused("invalid_grant")
		}
	case len(d.codes) == 0 || form.Get("device_code") != d.codes[len(d.codes)-1]:
		return refused("invalid_grant")
	default:
		d.codes = nil
	}
	d.valid = secret()
	now := time.Now()
	claims := map[string]any{"iss": d.issuer.URL, "aud": d.Client, "iat": now.Unix(), "exp": now.Add(d.life).Unix()}
	maps.Copy(claims, d.claims)
	id := d.issuer.Sign(d.t, claims)
	d.given = append(d.given, id)
	return http.StatusOK, map[string]any{"access_token": secret(), "token_type": "Bearer", "expires_in": 3600, "refresh_token": d.valid, "id_token": id}
}

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

// Device is the device flow of an issuer (RFC 8628), as providers have it: a refresh token is
// good once, and using it again ends the login.
type Device struct {
	// Client is whom it is for.
	Client string

	t      testing.TB
	issuer *Issuer
	mu     sync.Mutex // guards what follows
	answer string     // an error to answer with in place of tokens; empty for none
	claims map[string]any
	life   time.Duration
	codes  []string // that the user has not used yet
	valid  string   // the refresh token that is good now
	given  []string // all that is secret
	count  int
}

// Device adds the device flow for a client. The ID tokens have some claims, and live for some
// time. Users are done at once unless Answer says otherwise.
func (i *Issuer) Device(t testing.TB, client string, life time.Duration, claims map[string]any) *Device {
	d := &Device{Client: client, t: t, issuer: i, claims: claims, life: life}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.device = d
	return d
}

// Answer has the issuer answer with an error of OAuth in place of tokens; empty for none.
func (d *Device) Answer(code string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.answer = code
}

// Live sets how long the next ID tokens live.
func (d *Device) Live(life time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.life = life
}

// Refreshes is how often a refresh token was used.
func (d *Device) Refreshes() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.count
}

// LoggedIn says whether a login goes on.
func (d *Device) LoggedIn() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.valid != ""
}

// Secrets are the codes and tokens that were given to the client.
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

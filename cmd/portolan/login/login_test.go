package login_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/portolan-mesh/portolan/cmd/portolan/login"
	"github.com/portolan-mesh/portolan/discovery/identity/jwks/jwkstest"
)

const issuer = "https://accounts.example"

// provider answers within the test's synctest bubble. It has no connections, so it runs on the
// bubble's clock.
type provider struct {
	t       *testing.T
	signer  *jwkstest.Issuer
	answers []any // answers of the token endpoint, in order; the last repeats
	change  map[string]any
	asked   []string // forms sent to the token endpoint
	at      []time.Time
	scopes  string
}

// refusal is an answer with status 400 and this OAuth error.
type refusal string

// RoundTrip implements http.RoundTripper.
func (p *provider) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		document := map[string]any{
			"issuer": issuer, "token_endpoint": issuer + "/token", "device_authorization_endpoint": issuer + "/device", "revocation_endpoint": issuer + "/revoke",
			"scopes_supported": []string{"openid", "offline_access", "groups", "phone"},
		}
		for name, value := range p.change {
			document[name] = value
		}
		_ = json.NewEncoder(w).Encode(document)
	case "/device":
		p.scopes = r.FormValue("scope")
		_ = json.NewEncoder(w).Encode(map[string]any{
			"device_code": "device-hush", "user_code": "WDJB-MJHT", "verification_uri": issuer + "/go", "expires_in": 600, "interval": p.change["interval"],
		})
	default:
		if err := r.ParseForm(); err != nil {
			p.t.Error(err)
		}
		p.asked, p.at = append(p.asked, r.URL.Path+"?"+r.PostForm.Encode()), append(p.at, time.Now())
		answer := p.answers[0]
		if len(p.answers) > 1 {
			p.answers = p.answers[1:]
		}
		switch answer := answer.(type) {
		case error:
			return nil, answer
		case int:
			w.WriteHeader(answer)
		case refusal:
			code, description, _ := strings.Cut(string(answer), " ")
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusBadRequest)
			_ = json.NewEncoder(w).Encode(map[string]string{"error": code, "error_description": description})
		default:
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(answer)
		}
	}
	out := w.Result()
	out.Request = r
	return out, nil
}

func (p *provider) tokens(claims map[string]any) map[string]any {
	all := map[string]any{"iss": issuer, "aud": "cli", "sub": "ann", "iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix()}
	for name, value := range claims {
		if all[name] = value; value == nil {
			delete(all, name)
		}
	}
	return map[string]any{"access_token": "a", "token_type": "Bearer", "refresh_token": "refresh-hush", "id_token": p.signer.Sign(p.t, all)}
}

func (p *provider) client() login.Client {
	return login.Client{Issuer: issuer, ID: "cli", Transport: p}
}

// inBubble runs a test with a provider in a synctest bubble. Its signer is made outside of the
// bubble.
func inBubble(t *testing.T, f func(*testing.T, *provider)) {
	signer := jwkstest.New(t)
	synctest.Test(t, func(t *testing.T) { f(t, &provider{t: t, signer: signer}) })
}

func (p *provider) run(ctx context.Context, away func(error)) (login.Tokens, error) {
	d, err := login.Start(ctx, p.client())
	if err != nil {
		return login.Tokens{}, err
	}
	defer d.Close()
	if d.URL != issuer+"/go" || d.Code != "WDJB-MJHT" || d.Complete {
		p.t.Errorf("shown: %+v", d)
	}
	return d.Wait(ctx, away)
}

// TestALogin: the login polls at the provider's interval, and survives a provider that is away
// for a time.
func TestALogin(t *testing.T) {
	inBubble(t, func(t *testing.T, p *provider) {
		tokens := p.tokens(nil)
		p.answers = []any{refusal("authorization_pending"), refusal("slow_down"), refusal("authorization_pending"), errors.New("no route"), http.StatusBadGateway, tokens}
		began, away := time.Now(), 0
		got, err := p.run(t.Context(), func(err error) {
			away++
			if !errors.Is(err, login.ErrAway) || !strings.Contains(err.Error(), "the provider "+issuer+" does not answer (no route): try again") {
				t.Error(err)
			}
		})
		if err != nil || got.ID != tokens["id_token"] || got.Refresh != "refresh-hush" || away != 1 {
			t.Errorf("%v, away %d times", err, away)
		}
		var after []string
		for _, at := range p.at {
			after = append(after, at.Sub(began).String())
		}
		if want := "5s 10s 20s 30s 40s 1m0s"; strings.Join(after, " ") != want {
			t.Errorf("asked after %v, want %s", after, want)
		}
		if p.scopes != "openid groups offline_access" || !strings.Contains(p.asked[0], "device_code=device-hush") {
			t.Errorf("scopes %q, asked %q", p.scopes, p.asked[0])
		}
	})
}

// TestLoginsThatFail: each error says what is wrong and what to do, and contains no secret.
func TestLoginsThatFail(t *testing.T) {
	for name, c := range map[string]struct {
		change  map[string]any
		answer  func(*provider) any
		want    string
		is      error
		refresh string // error of Refresh, if it differs
	}{
		"denied":            {answer: func(*provider) any { return refusal("access_denied the user said no\x1b[2J") }, want: "denies the login (access_denied, the user said no [2J)", refresh: "-"},
		"expired":           {answer: func(*provider) any { return refusal("expired_token") }, want: "the code was not used in time: portolan login shows another", refresh: "-"},
		"never":             {answer: func(*provider) any { return refusal("authorization_pending") }, want: "the code was not used in time", refresh: "-"},
		"gone":              {answer: func(*provider) any { return errors.New("no route") }, want: "the code was not used in time", refresh: "does not answer (no route): try again"},
		"unknown code":      {answer: func(*provider) any { return refusal("invalid_grant") }, want: "the code was not used in time", refresh: "has ended the login (invalid_grant): log in again: portolan login"},
		"another client":    {answer: func(*provider) any { return refusal("unauthorized_client") }, want: `does not let the client "cli" log users in with the device flow`},
		"scopes":            {answer: func(*provider) any { return refusal("invalid_scope") }, want: "does not give the scopes openid, groups, offline_access"},
		"something else":    {answer: func(*provider) any { return refusal("odd") }, want: "refuses the request: odd"},
		"secrets":           {answer: func(*provider) any { return refusal("odd device-hush refresh-hush") }, want: "refuses the request: 400 Bad Request"},
		"no ID token":       {answer: func(*provider) any { return map[string]any{"access_token": "hush", "token_type": "Bearer"} }, want: "gives no ID token", is: login.ErrEnded},
		"no token":          {answer: func(*provider) any { return map[string]any{"id_token": "hush"} }, want: "cannot be understood"},
		"no JSON":           {answer: func(*provider) any { return "hush" }, want: "cannot be understood"},
		"no JWT":            {answer: func(*provider) any { return map[string]any{"access_token": "a", "id_token": "hush"} }, want: "it is no JWT"},
		"another audience":  {answer: func(p *provider) any { return p.tokens(map[string]any{"aud": "other"}) }, want: `not for the client "cli"`},
		"another issuer":    {answer: func(p *provider) any { return p.tokens(map[string]any{"iss": "https://other.example"}) }, want: "is not its own"},
		"without an end":    {answer: func(p *provider) any { return p.tokens(map[string]any{"exp": nil}) }, want: "does not say when it expires"},
		"too long":          {answer: func(p *provider) any { return p.tokens(map[string]any{"groups": strings.Repeat("a", 20<<10)}) }, want: "such as fewer groups"},
		"a redirect":        {answer: func(*provider) any { return http.StatusTemporaryRedirect }, want: "refuses the request: 307 Temporary Redirect"},
		"no device flow":    {change: map[string]any{"device_authorization_endpoint": ""}, want: "has no device flow", refresh: "-"},
		"another name":      {change: map[string]any{"issuer": issuer + "/\n"}, want: "correct the issuer of the TokenIssuer"},
		"plaintext":         {change: map[string]any{"token_endpoint": "http://accounts.example/token"}, want: "has a token_endpoint that nothing is sent to"},
		"endless pauses":    {change: map[string]any{"interval": 1 << 60}, answer: func(*provider) any { return refusal("access_denied") }, want: "denies the login", refresh: "-"},
		"pauses below zero": {change: map[string]any{"interval": -5}, answer: func(*provider) any { return refusal("access_denied") }, want: "denies the login", refresh: "-"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, p *provider) {
				p.change = c.change
				check := func(what, want string, err error) {
					t.Helper()
					if err == nil || !strings.Contains(err.Error(), want) || c.is != nil && !errors.Is(err, c.is) || strings.Contains(err.Error(), "hush") || strings.ContainsAny(err.Error(), "\x1b\n") {
						t.Errorf("%s: %v, want %q", what, err, want)
					}
				}
				if c.answer != nil {
					p.answers = []any{c.answer(p)}
				}
				_, err := p.run(t.Context(), func(error) {})
				check("login", c.want, err)
				if c.refresh != "-" {
					want := c.want
					if c.refresh != "" {
						want = c.refresh
					}
					_, err = login.Refresh(t.Context(), p.client(), "refresh-hush")
					check("refresh", want, err)
				}
			})
		})
	}
}

func TestRefreshAndRevoke(t *testing.T) {
	inBubble(t, func(t *testing.T, p *provider) {
		tokens := p.tokens(nil)
		delete(tokens, "refresh_token") // then the old one stays valid
		p.answers = []any{tokens, "", http.StatusServiceUnavailable}
		got, err := login.Refresh(t.Context(), p.client(), "old")
		if err != nil || got.ID != tokens["id_token"] || got.Refresh != "old" {
			t.Error(err)
		}
		if told, err := login.Revoke(t.Context(), p.client(), "old"); !told || err != nil {
			t.Errorf("%v, %v", told, err)
		}
		if told, err := login.Revoke(t.Context(), p.client(), "old"); told || !errors.Is(err, login.ErrAway) {
			t.Errorf("%v, %v", told, err)
		}
		want := []string{"/token?client_id=cli&grant_type=refresh_token&refresh_token=old", "/revoke?client_id=cli&token=old&token_type_hint=refresh_token"}
		if !slices.Equal(p.asked[:2], want) {
			t.Errorf("asked %q", p.asked)
		}
		p.change = map[string]any{"revocation_endpoint": ""}
		if told, err := login.Revoke(t.Context(), p.client(), "old"); told || err != nil {
			t.Errorf("%v, %v", told, err)
		}
	})
}

// TestALoginThatIsGivenUp: a cancelled login ends at once, and says so.
func TestALoginThatIsGivenUp(t *testing.T) {
	inBubble(t, func(t *testing.T, p *provider) {
		p.answers = []any{refusal("authorization_pending")}
		ctx, cancel := context.WithTimeout(t.Context(), 17*time.Second)
		defer cancel()
		if _, err := p.run(ctx, func(error) {}); !errors.Is(err, context.DeadlineExceeded) || len(p.asked) != 3 {
			t.Errorf("%v, asked %d times", err, len(p.asked))
		}
	})
}

func TestWhenATokenIsDue(t *testing.T) {
	t.Parallel()
	signer := jwkstest.New(t)
	for _, c := range []struct {
		iat      any
		due, end int64
	}{{1000, 4570, 4600}, {4580, 4595, 4600}, {nil, 4570, 4600}, {9000, 4600, 4600}} {
		claims := map[string]any{"exp": 4600}
		if c.iat != nil {
			claims["iat"] = c.iat
		}
		if due, end := login.Due(signer.Sign(t, claims)); due.Unix() != c.due || end.Unix() != c.end {
			t.Errorf("%v: due at %d, ends at %d", c, due.Unix(), end.Unix())
		}
	}
	if due, end := login.Due("none"); !due.IsZero() || !end.IsZero() {
		t.Error(due, end)
	}
}

// FuzzAnswers: whatever a provider answers, a login ends, and no error has a control character.
func FuzzAnswers(f *testing.F) {
	f.Add(`{"issuer":"https://accounts.example","token_endpoint":"https://accounts.example/token","device_authorization_endpoint":"https://accounts.example/device"}`,
		`{"device_code":"d","user_code":"u","verification_uri":"https://accounts.example/go","expires_in":10,"interval":1}`, `{"access_token":"a","id_token":"eyJ.eyJ.a"}`, 200)
	f.Add(`{}`, `null`, `null`, 200)
	f.Add(`{"issuer":"https://accounts.example","token_endpoint":"https://a","device_authorization_endpoint":"https://a"}`, `{"device_code":"d","user_code":"u","verification_url":"x"}`, `{"error":"slow_down"}`, 400)
	f.Fuzz(func(t *testing.T, document, device, token string, status int) {
		if status < 200 || status > 599 {
			status = 200
		}
		synctest.Test(t, func(t *testing.T) {
			roundTripper := transport(func(r *http.Request) *http.Response {
				out := &http.Response{StatusCode: http.StatusOK, Status: "200 OK", Header: http.Header{"Content-Type": {"application/json"}}, Request: r}
				text := document
				switch {
				case r.Method == http.MethodPost && r.FormValue("grant_type") == "":
					text = device
				case r.Method == http.MethodPost:
					text, out.StatusCode, out.Status = token, status, fmt.Sprint(status)
				}
				out.Body = io.NopCloser(strings.NewReader(text))
				return out
			})
			c := login.Client{Issuer: issuer, ID: "cli", Transport: roundTripper}
			_, err := login.Refresh(t.Context(), c, "r")
			d, started := login.Start(t.Context(), c)
			if started == nil {
				if strings.ContainsFunc(d.URL+d.Code, func(r rune) bool { return r < ' ' }) {
					t.Errorf("shown: %q %q", d.URL, d.Code)
				}
				_, started = d.Wait(t.Context(), func(error) {})
				d.Close()
			}
			for _, err := range []error{err, started} {
				if err != nil && strings.ContainsFunc(err.Error(), func(r rune) bool { return r < ' ' }) {
					t.Errorf("%q", err)
				}
			}
		})
	})
}

type transport func(*http.Request) *http.Response

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r), nil }

package access

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/clitest"
	"github.com/portolan-mesh/portolan/cmd/portolan/contexts"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/credentials"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/resttest"
	"github.com/portolan-mesh/portolan/discovery/access"
	"github.com/portolan-mesh/portolan/discovery/identity/jwks"
	"github.com/portolan-mesh/portolan/discovery/identity/jwks/jwkstest"
	"github.com/portolan-mesh/portolan/discovery/identity/oidc"
	spec "github.com/portolan-mesh/portolan/storage/access"
	"github.com/portolan-mesh/portolan/storage/memory"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// logins is an API with users, and with the issuers that a test adds.
type logins struct {
	clitest.API
	file string // path of the file of contexts
	mu   sync.Mutex
	all  []oidc.Issuer // guarded by mu
	keys map[string]*jwkstest.Issuer
}

// Keys implements oidc.Keys.
func (l *logins) Keys(_ context.Context, source jwks.Source, _ string) (*jwks.Keys, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return jwks.Parse(l.keys[source.URL].Set())
}

// add makes an issuer one that users can log in with.
func (l *logins) add(name string, issuer *jwkstest.Issuer, client string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.keys[issuer.URL] = issuer
	l.all = append(l.all, oidc.Issuer{Name: name, Spec: &spec.TokenIssuer{
		Issuer: issuer.URL, CA: issuer.CA, Audiences: []string{client},
		Users: &spec.UserClaims{Groups: "groups", Login: &spec.Login{ClientID: client}},
	}})
}

// issued implements access.Bearer.
type issued struct{ *oidc.Verifier }

func (i issued) Bear(ctx context.Context, token string) (access.Identity, error) {
	user, err := i.User(ctx, token)
	return access.Identity{User: user.Name, Groups: user.Groups}, err
}

func startLogins(t *testing.T) *logins {
	t.Helper()
	l := &logins{keys: map[string]*jwkstest.Issuer{}, file: filepath.Join(t.TempDir(), "contexts.yaml")}
	t.Setenv("PORTOLAN_CONFIG", l.file)
	issuers := func() ([]oidc.Issuer, bool) {
		l.mu.Lock()
		defer l.mu.Unlock()
		return append([]oidc.Issuer(nil), l.all...), true
	}
	verifier := oidc.New(oidc.Options{Keys: l, TrustDomain: "cluster.local", Issuers: issuers})
	var keeper *access.Keeper
	var store *memory.Store
	l.API = line.On(resttest.Start(t, 0, func(o *rest.Options) {
		source := o.Cache
		store = o.Store.(*memory.Store)
		keeper = access.NewKeeper(access.Options{
			Snapshot: func() *cache.Snapshot { return source.Snapshot() }, Schemas: schema.All(), Root: "istio-system", Bearers: []access.Bearer{issued{verifier}},
		})
		o.Authenticator, o.Authorizer, o.Sealer = keeper, keeper, rest.Sealers{schema.User: keeper}
	}, func(s *rest.Server) { credentials.Users(s, keeper, store); credentials.Logins(s, issuers) }))
	return l
}

func (l *logins) kept(t *testing.T, name string) contexts.Context {
	t.Helper()
	file, err := contexts.Read(l.file)
	if err != nil {
		t.Fatal(err)
	}
	one, _ := file.Find(name)
	return one
}

func clean(t *testing.T, what string, o clitest.Outcome, secrets []string) {
	t.Helper()
	for _, secret := range secrets {
		if strings.Contains(o.Out+o.Err, secret) {
			t.Errorf("%s shows a secret: %+v", what, o)
		}
	}
}

// TestLogin: a login with a provider, its renewal, and the logout.
func TestLogin(t *testing.T) {
	l := startLogins(t)
	if o := l.Do(t, "", "login"); o.Code != exit.Data || !strings.Contains(o.Err, "no provider logs users in at "+l.URL) {
		t.Errorf("without providers: %+v", o)
	}
	issuer := jwkstest.New(t)
	device := issuer.Device(t, "cli", time.Hour, map[string]any{"sub": "ann", "groups": []string{"dev"}})
	l.add("corp", issuer, "cli")
	device.Answer("access_denied")
	if o := l.Do(t, "", "login"); o.Code != exit.Failure || !strings.Contains(o.Err, "denies the login (access_denied)") {
		t.Errorf("denied: %+v", o)
	}
	device.Answer("")
	in := l.Do(t, "", "login", "--context", "work")
	clean(t, "login", in, device.Secrets())
	if in.Code != 0 || in.Out != "You are corp:ann at "+l.URL+", by the context work.\n" || !strings.Contains(in.Err, issuer.URL+"/go?code=WDJB-MJHT\n") || !strings.Contains(in.Err, "You have no rights yet") {
		t.Fatalf("login: %+v", in)
	}
	before := l.kept(t, "work")
	if info, err := os.Stat(l.file); err != nil || info.Mode().Perm() != 0o600 || before.Login == nil || before.Server != l.URL || before.Token != "" {
		t.Fatalf("kept: %+v, %v", before, err)
	}
	me := func(want string, args ...string) {
		t.Helper()
		if o := do(t, "", append([]string{"auth", "whoami"}, args...)...); o.Code != 0 || !strings.Contains(o.Out, want) {
			t.Errorf("whoami: %+v, want %s", o, want)
		}
	}
	me("corp:dev")
	if out := do(t, "", "config", "get-contexts").Out; !strings.Contains(out, "login with "+issuer.URL) {
		t.Errorf("contexts: %s", out)
	}
	if device.Refreshes() != 0 {
		t.Error("a token that is good was replaced")
	}

	// No other server gets the token: not one given by --server, nor one that replaces the
	// server of the context.
	me("local", "--server", strings.Replace(l.URL, "127.0.0.1", "localhost", 1))
	do(t, "", "config", "set-context", "copy", "--server", l.URL)
	edit(t, l.file, func(f contexts.File) contexts.File {
		one, _ := f.Find("copy")
		other := *before.Login
		other.Server = "http://127.0.0.1:1"
		one.Login = &other
		return f.With(one)
	})
	me("local", "--context", "copy")
	do(t, "", "config", "set-context", "copy", "--server", l.URL+"/", "--namespace", "shop")
	if l.kept(t, "copy").Login == nil {
		t.Error("the login of the same server is gone")
	}
	do(t, "", "config", "set-context", "copy", "--server", "http://127.0.0.1:1")
	if l.kept(t, "copy").Login != nil {
		t.Error("a login is kept for another server")
	}

	// However many commands run, tokens that are due are replaced once.
	expire := func(context string) {
		edit(t, l.file, func(f contexts.File) contexts.File {
			one, _ := f.Find(context)
			changed := *one.Login
			changed.IDToken = issuer.Sign(t, map[string]any{"iss": issuer.URL, "aud": "cli", "sub": "ann", "exp": time.Now().Add(-time.Hour).Unix()})
			one.Login = &changed
			return f.With(one)
		})
	}
	expire("work")
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() { me("corp:ann") })
	}
	group.Wait()
	after := l.kept(t, "work")
	if device.Refreshes() != 1 || after.Login.RefreshToken == before.Login.RefreshToken || after.Login.IDToken == before.Login.IDToken {
		t.Errorf("%d refreshes", device.Refreshes())
	}

	// A token that the server refuses is replaced although it seems valid, as with a wrong
	// clock.
	edit(t, l.file, func(f contexts.File) contexts.File {
		one, _ := f.Find("work")
		wrong := *one.Login
		wrong.IDToken = jwkstest.New(t).Sign(t, map[string]any{"iss": issuer.URL, "aud": "cli", "sub": "ann", "exp": time.Now().Add(time.Hour).Unix()})
		one.Login = &wrong
		return f.With(one)
	})
	if me("corp:ann"); device.Refreshes() != 2 {
		t.Errorf("%d refreshes", device.Refreshes())
	}

	// While the token is valid, a provider that is away does not matter.
	device.Answer("temporarily_unavailable")
	expire("work")
	if o := do(t, "", "auth", "whoami"); o.Code != exit.Unreachable || !strings.Contains(o.Err, "cannot answer now (temporarily_unavailable): try again") {
		t.Errorf("away: %+v", o)
	}
	edit(t, l.file, func(f contexts.File) contexts.File {
		one, _ := f.Find("work")
		due := *one.Login
		due.IDToken = issuer.Sign(t, map[string]any{"iss": issuer.URL, "aud": "cli", "sub": "ann", "exp": time.Now().Add(20 * time.Second).Unix()})
		one.Login = &due
		return f.With(one)
	})
	me("corp:ann")
	device.Answer("invalid_grant")
	expire("work")
	ended := do(t, "", "auth", "whoami")
	clean(t, "whoami", ended, device.Secrets())
	if ended.Code != exit.Forbidden || !strings.Contains(ended.Err, "has ended the login (invalid_grant): log in again: portolan login") {
		t.Errorf("ended: %+v", ended)
	}
	device.Answer("")

	if o := do(t, "", "logout"); o.Code != 0 || o.Out != "The context work has forgotten who you are.\n" || o.Err != "" || device.LoggedIn() {
		t.Errorf("logout: %+v, goes on: %v", o, device.LoggedIn())
	}
	if text, err := os.ReadFile(l.file); err != nil || strings.Contains(string(text), "Token") || strings.Contains(string(text), "oken:") {
		t.Errorf("%v: %s", err, text)
	}
	if o := do(t, "", "logout"); o.Code != 0 || o.Out != "The context work keeps no login.\n" {
		t.Errorf("logout: %+v", o)
	}

	other := jwkstest.New(t)
	l.add("lab", other, "cli")
	if o := do(t, "", "login"); o.Code != exit.Usage || !strings.Contains(o.Err, "name one of corp, lab with --provider") {
		t.Errorf("several: %+v", o)
	}
	if o := do(t, "", "login", "--provider", "labs"); o.Code != exit.Usage || !strings.Contains(o.Err, "--provider labs: the server has corp, lab") {
		t.Errorf("unknown: %+v", o)
	}
	if o := do(t, "", "login", "--provider", "lab"); o.Code != exit.Failure || !strings.Contains(o.Err, "has no token_endpoint") {
		t.Errorf("without the flow: %+v", o)
	}
}

func edit(t *testing.T, file string, change func(contexts.File) contexts.File) {
	t.Helper()
	err := contexts.Update(t.Context(), file, func(f contexts.File) (contexts.File, bool, error) { return change(f), true, nil })
	if err != nil {
		t.Fatal(err)
	}
}

// TestLoginByToken: login stores a token that the server accepts, for this server only.
func TestLoginByToken(t *testing.T) {
	l := startLogins(t)
	alice := strings.TrimSpace(l.Must(t, "", "user", "create", "alice", "--role", "admin"))
	file := filepath.Join(t.TempDir(), "alice.token")
	if err := os.WriteFile(file, []byte(alice+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if o := l.Do(t, "", "login", "--token", "put_wrong"); o.Code != exit.Forbidden || !strings.Contains(o.Err, "the token is not valid") || l.kept(t, "work").Name != "" {
		t.Errorf("a wrong token: %+v", o)
	}
	if o := l.Do(t, "", "login", "--token-file", file, "--provider", "x"); o.Code != exit.Usage {
		t.Errorf("both: %+v", o)
	}
	host := strings.TrimPrefix(l.URL, "http://")
	if o := l.Do(t, "", "login", "--token-file", file); o.Code != 0 || o.Out != "You are alice at "+l.URL+", by the context "+host+".\n" || o.Err != "" {
		t.Fatalf("login: %+v", o)
	}
	if o := do(t, "", "auth", "whoami"); o.Code != 0 || !strings.Contains(o.Out, "alice") {
		t.Errorf("whoami: %+v", o)
	}
	if o := do(t, "", "login", "--token-file", file, "--server", "http://127.0.0.1:1"); o.Code != exit.Usage || !strings.Contains(o.Err, "the current context "+host+" is of another server") {
		t.Errorf("another server: %+v", o)
	}
	t.Setenv("PORTOLAN_TOKEN", "x")
	if o := do(t, "", "login"); o.Code != exit.Usage || !strings.Contains(o.Err, "PORTOLAN_TOKEN is set") {
		t.Errorf("with a variable: %+v", o)
	}
	t.Setenv("PORTOLAN_TOKEN", "")
	if o := do(t, "", "logout"); o.Code != 0 || !strings.Contains(o.Err, "portolan user token revoke") || l.kept(t, host).Token != "" {
		t.Errorf("logout: %+v", o)
	}
	if o := do(t, "", "logout", "--context", "none"); o.Code != exit.Data || !strings.Contains(o.Err, `no context "none"`) {
		t.Errorf("logout of nothing: %+v", o)
	}
	if o := do(t, "", "login", "--server", "http://192.0.2.1:1", "--token-file", file, "--context", "far"); o.Code != exit.Usage || !strings.Contains(o.Err, "a token is not sent in the clear to 192.0.2.1:1") {
		t.Errorf("in the clear: %+v", o)
	}
}

func TestSameServer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"https://mesh.example", "https://Mesh.example:443/", true},
		{"127.0.0.1:15080", "http://127.0.0.1:15080", true},
		{"unix:/run/a.sock", "unix:///run/a.sock", true},
		{"unix:/run/a.sock", "unix:/run/b.sock", false},
		{"localhost:1", "localhost:2", false},
		{"https://mesh.example:1", "http://mesh.example:1", false},
		{"https://mesh.example", "https://mesh.example.evil", false},
		{"https://mesh.example@evil", "https://mesh.example", false},
		{"", "", false}, {"https://", "https://", false}, {"http://%", "http://%", false},
	} {
		if got := cli.SameServer(c.a, c.b); got != c.want {
			t.Errorf("%q and %q: %v", c.a, c.b, got)
		}
	}
}

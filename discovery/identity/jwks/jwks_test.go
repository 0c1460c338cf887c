package jwks_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/portolan-mesh/portolan/discovery/identity/jwks"
	"github.com/portolan-mesh/portolan/discovery/identity/jwks/jwkstest"
)

// clock is a clock that tests set.
type clock struct{ seconds atomic.Int64 }

func (c *clock) now() time.Time        { return time.Unix(1_800_000_000+c.seconds.Load(), 0) }
func (c *clock) pass(by time.Duration) { c.seconds.Add(int64(by / time.Second)) }

// start runs a fetcher until the test ends.
func start(t *testing.T) (*jwks.Fetcher, *clock) {
	t.Helper()
	c := &clock{}
	f := jwks.New(jwks.Options{Now: c.now})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = f.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return f, c
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// until calls Keys until the result satisfies is.
func until(t *testing.T, f *jwks.Fetcher, source jwks.Source, is func(*jwks.Keys, error) bool) {
	t.Helper()
	ctx := within(t)
	for {
		keys, err := f.Keys(ctx, source, "")
		if is(keys, err) {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("the keys are not as they should be: %v", err)
		}
		time.Sleep(time.Millisecond)
	}
}

func TestKeysAreFetchedOnceAndKept(t *testing.T) {
	t.Parallel()
	issuer := jwkstest.New(t)
	f, _ := start(t)
	for _, source := range []jwks.Source{{URL: issuer.URL + "/keys", CA: issuer.CA}, {URL: issuer.URL, Discover: true, CA: issuer.CA}} {
		before := issuer.Fetches.Load()
		var callers sync.WaitGroup
		for range 50 {
			callers.Go(func() {
				keys, err := f.Keys(within(t), source, "first")
				if err != nil || len(keys.Find("first", "ES256")) != 1 || len(keys.Find("", "ES256")) != 1 || len(keys.Find("first", "ES384")) != 0 || len(keys.Find("other", "ES256")) != 0 {
					t.Errorf("%+v, %v", keys, err)
				}
			})
		}
		callers.Wait()
		if n := issuer.Fetches.Load() - before; n != 1 {
			t.Errorf("%d fetches", n)
		}
	}
}

// TestASourceIsFollowed: without a call of Keys, the problem of a source is known. It is
// fetched once a minute.
func TestASourceIsFollowed(t *testing.T) {
	t.Parallel()
	issuer := jwkstest.New(t)
	issuer.Answer(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusInternalServerError) })
	f, clock := start(t)
	source := jwks.Source{URL: issuer.URL + "/keys", CA: issuer.CA}
	follow := func(is func(error) bool) {
		t.Helper()
		for ctx := within(t); !is(f.Problem(source)); {
			f.Follow(source)
			if ctx.Err() != nil {
				t.Fatalf("the problem is %v", f.Problem(source))
			}
			time.Sleep(time.Millisecond)
		}
	}
	follow(func(err error) bool { return err != nil })
	issuer.Answer(nil)
	for range 100 {
		f.Follow(source)
	}
	if f.Problem(source) == nil {
		t.Error("it is asked again at once")
	}
	clock.pass(2 * time.Minute)
	follow(func(err error) bool { return err == nil })
	if keys, err := f.Keys(within(t), source, ""); err != nil || keys == nil {
		t.Errorf("its keys: %v", err)
	}
}

// TestAnUnknownKeyIsAskedForOnceAMinute: a rotated key is found, and a caller who invents key
// ids causes no load.
func TestAnUnknownKeyIsAskedForOnceAMinute(t *testing.T) {
	t.Parallel()
	issuer := jwkstest.New(t)
	f, c := start(t)
	source := jwks.Source{URL: issuer.URL + "/keys", CA: issuer.CA}
	if _, err := f.Keys(within(t), source, "first"); err != nil {
		t.Fatal(err)
	}
	issuer.Rotate(t, "second")
	for range 100 {
		if keys, err := f.Keys(within(t), source, "second"); err != nil || len(keys.Find("second", "ES256")) != 0 {
			t.Fatalf("%v, %v", keys, err)
		}
	}
	c.pass(jwks.DefaultPause)
	if keys, err := f.Keys(within(t), source, "second"); err != nil || len(keys.Find("second", "ES256")) != 1 {
		t.Fatalf("after a minute: %v, %v", keys, err)
	}
	if n := issuer.Fetches.Load(); n != 2 {
		t.Errorf("%d fetches", n)
	}
}

// TestTheLastGoodKeysStay: the last good keys stay while the source is away, huge or answers
// nonsense.
func TestTheLastGoodKeysStay(t *testing.T) {
	t.Parallel()
	issuer := jwkstest.New(t)
	f, c := start(t)
	source := jwks.Source{URL: issuer.URL + "/keys", CA: issuer.CA}
	if _, err := f.Keys(within(t), source, ""); err != nil {
		t.Fatal(err)
	}
	for want, answer := range map[string]http.HandlerFunc{
		"503":                    func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) },
		"more than 524288 bytes": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 1<<20)) },
		"no JSON Web Key Set":    func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) },
		"no public key":          func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"keys":[]}`)) },
		"is not https": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://accounts.example/keys", http.StatusFound)
		},
		"redirects more than 3": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/keys", http.StatusFound) },
		"EOF":                   func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"it has 101 keys": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"keys":[` + strings.Repeat("{},", 100) + `{}]}`))
		},
	} {
		issuer.Answer(answer)
		c.pass(jwks.DefaultRefresh)
		before := issuer.Fetches.Load()
		until(t, f, source, func(keys *jwks.Keys, err error) bool {
			if err != nil || len(keys.Find("first", "ES256")) != 1 {
				t.Fatalf("%s: %v, %v", want, keys, err)
			}
			problem := f.Problem(source)
			return issuer.Fetches.Load() > before && problem != nil && strings.Contains(problem.Error(), want)
		})
	}
	issuer.Rotate(t, "second")
	issuer.Answer(nil)
	c.pass(jwks.DefaultRefresh)
	until(t, f, source, func(keys *jwks.Keys, _ error) bool { return len(keys.Find("second", "ES256")) == 1 })
}

// TestASlowSourceDelaysNobodyWhoHasKeys: a slow source delays only callers for whom there are
// no keys yet.
func TestASlowSourceDelaysNobodyWhoHasKeys(t *testing.T) {
	t.Parallel()
	issuer := jwkstest.New(t)
	f, c := start(t)
	source := jwks.Source{URL: issuer.URL + "/keys", CA: issuer.CA}
	if _, err := f.Keys(within(t), source, ""); err != nil {
		t.Fatal(err)
	}
	release, came := make(chan struct{}), make(chan struct{}, 10)
	issuer.Answer(func(w http.ResponseWriter, r *http.Request) {
		came <- struct{}{}
		select {
		case <-release:
		case <-r.Context().Done():
		}
		_, _ = w.Write(issuer.Set())
	})
	c.pass(jwks.DefaultRefresh)
	for range 10 {
		if _, err := f.Keys(within(t), source, "first"); err != nil {
			t.Fatal(err)
		}
	}
	<-came
	other := jwks.Source{URL: issuer.URL, Discover: true, CA: issuer.CA}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.Keys(ctx, other, ""); !errors.Is(err, context.Canceled) {
		t.Errorf("who does not wait: %v", err)
	}
	close(release)
	if _, err := f.Keys(within(t), other, ""); err != nil {
		t.Errorf("who waits: %v", err)
	}
}

func TestASourceThatWasNeverThere(t *testing.T) {
	t.Parallel()
	issuer := jwkstest.New(t)
	f, c := start(t)
	for _, source := range []jwks.Source{
		{URL: issuer.URL + "/keys"}, // its certificate is of an unknown authority
		{URL: issuer.URL + "/keys", CA: "nonsense"},
		{URL: "http://accounts.example/keys"},
		{URL: "https://user:password@127.0.0.1/keys"},
		{URL: "file:///etc/passwd"},
		{URL: issuer.URL + "/", Discover: true, CA: issuer.CA}, // its document names another issuer
	} {
		if keys, err := f.Keys(within(t), source, "a"); keys != nil || !errors.Is(err, jwks.ErrNoKeys) {
			t.Errorf("%+v: %v, %v", source, keys, err)
		}
	}
	source := jwks.Source{URL: issuer.URL + "/keys", CA: issuer.CA}
	issuer.Answer(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) })
	if _, err := f.Keys(within(t), source, "first"); !errors.Is(err, jwks.ErrNoKeys) {
		t.Error(err)
	}
	issuer.Answer(nil)
	c.pass(5 * time.Second)
	if _, err := f.Keys(within(t), source, "first"); err != nil {
		t.Errorf("once it is there: %v", err)
	}
}

func TestKeysThatVerifyNothingAreLeftOut(t *testing.T) {
	t.Parallel()
	elliptic256, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	edwards, private, _ := ed25519.GenerateKey(rand.Reader)
	strong, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	set := jose.JSONWebKeySet{Keys: []jose.JSONWebKey{
		{Key: []byte("a secret that both know, in 32 B"), KeyID: "shared"},
		{Key: private, KeyID: "private"},
		{Key: elliptic256.Public(), KeyID: "encryption", Use: "enc"},
		{Key: edwards, KeyID: "edwards"},
		{Key: strong.Public(), KeyID: "rsa"},
	}}
	text, err := json.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	text = []byte(strings.Replace(string(text), `{"keys":[`, `{"keys":[{"kty":"odd"},{"kty":"RSA","kid":"weak","n":"AQAB","e":"AQAB"},7,`, 1))
	keys, err := jwks.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	for id, algorithm := range map[string]string{"shared": "HS256", "private": "EdDSA", "encryption": "ES256", "weak": "RS256"} {
		if got := keys.Find(id, algorithm); len(got) > 0 {
			t.Errorf("%s is kept", id)
		}
	}
	if len(keys.Find("edwards", "EdDSA")) != 1 || len(keys.Find("rsa", "PS256")) != 1 || len(keys.Find("rsa", "HS256")) != 0 || len(keys.Find("", "RS256")) != 1 {
		t.Error("a good key is not kept, or is for what it cannot be")
	}
}

// FuzzParse: no document breaks the parser, and it keeps only public keys.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"keys":[{"kty":"EC","crv":"P-256","x":"AQ","y":"AQ"}]}`))
	f.Add([]byte(`{"keys":[{"kty":"oct","k":"AQ"}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		keys, err := jwks.Parse(text)
		if err != nil {
			return
		}
		for _, algorithm := range jwks.Algorithms() {
			for _, key := range keys.Find("", string(algorithm)) {
				if !key.IsPublic() {
					t.Error("a key that is not public")
				}
			}
		}
	})
}

// TestASourceSaysHowLongItsKeysAreFresh: within bounds, keys are fetched again when they are stale.
func TestASourceSaysHowLongItsKeysAreFresh(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]time.Duration{
		"":                               jwks.DefaultRefresh,
		"public":                         jwks.DefaultRefresh,
		"max-age=none":                   jwks.DefaultRefresh,
		"max-age=300":                    5 * time.Minute,
		`Public, Max-Age="7200"`:         2 * time.Hour,
		"max-age=1":                      jwks.DefaultPause,
		"no-cache":                       jwks.DefaultPause,
		"no-store, max-age=300":          jwks.DefaultPause,
		"max-age=2000000000":             jwks.MaxRefresh,
		"max-age=99999999999999999999":   jwks.DefaultRefresh,
		"s-maxage=60, max-age=600,other": 10 * time.Minute,
	} {
		t.Run(header, func(t *testing.T) {
			t.Parallel()
			issuer := jwkstest.New(t)
			issuer.Answer(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Cache-Control", header)
				_, _ = w.Write(issuer.Set())
			})
			f, c := start(t)
			source := jwks.Source{URL: issuer.URL + "/keys", CA: issuer.CA}
			if _, ended, err := f.Fetched(source); ended || err != nil {
				t.Errorf("before: %v, %v", ended, err)
			}
			if _, err := f.Keys(within(t), source, ""); err != nil {
				t.Fatal(err)
			}
			c.pass(want - time.Second)
			f.Follow(source)
			if n := issuer.Fetches.Load(); n != 1 {
				t.Errorf("%d fetches before they are stale", n)
			}
			c.pass(time.Second)
			for ctx := within(t); issuer.Fetches.Load() < 2; {
				f.Follow(source)
				if ctx.Err() != nil {
					t.Fatal("they are not fetched again when they are stale")
				}
				time.Sleep(time.Millisecond)
			}
			if keys, ended, err := f.Fetched(source); keys == nil || !ended || err != nil {
				t.Errorf("after: %v, %v", ended, err)
			}
		})
	}
}

// TestEqualKeysAreEqualText: whatever the order in which a source lists its keys.
func TestEqualKeysAreEqualText(t *testing.T) {
	t.Parallel()
	one, two := jwkstest.New(t), jwkstest.New(t)
	join := func(a, b []byte) string {
		text := strings.TrimSuffix(string(a), "]}") + "," + strings.TrimPrefix(string(b), `{"keys":[`)
		keys, err := jwks.Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return keys.Public()
	}
	if a, b := join(one.Set(), two.Set()), join(two.Set(), one.Set()); a != b || strings.Count(a, "kty") != 2 {
		t.Errorf("%s\n%s", a, b)
	}
}

// TestPlaintextIsTakenWhereItIsAskedFor: from the URL that says http, and never where one says https.
func TestPlaintextIsTakenWhereItIsAskedFor(t *testing.T) {
	t.Parallel()
	f, _ := start(t)
	for _, c := range []struct {
		source jwks.Source
		plain  bool // it is refused for being plaintext
	}{
		{jwks.Source{URL: "http://192.0.2.1/keys"}, true},
		{jwks.Source{URL: "http://192.0.2.1/keys", Plaintext: true, Timeout: time.Millisecond}, false},
	} {
		_, err := f.Keys(within(t), c.source, "")
		if err == nil || strings.Contains(err.Error(), "plaintext") != c.plain {
			t.Errorf("%+v: %v", c.source, err)
		}
	}
	issuer := jwkstest.New(t)
	issuer.Answer(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://192.0.2.1/keys", http.StatusFound)
	})
	if _, err := f.Keys(within(t), jwks.Source{URL: issuer.URL + "/keys", CA: issuer.CA, Plaintext: true}, ""); err == nil || !strings.Contains(err.Error(), "plaintext") {
		t.Errorf("a redirect from https: %v", err)
	}
}

package oidc_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/portolan-mesh/portolan/discovery/identity"
	"github.com/portolan-mesh/portolan/discovery/identity/jwks"
	"github.com/portolan-mesh/portolan/discovery/identity/jwks/jwkstest"
	"github.com/portolan-mesh/portolan/discovery/identity/oidc"
	"github.com/portolan-mesh/portolan/storage/access"
)

// direct has the keys of issuers without fetching.
type direct struct{ issuers map[string]*jwkstest.Issuer }

func (d direct) Keys(_ context.Context, source jwks.Source, _ string) (*jwks.Keys, error) {
	issuer := d.issuers[source.URL]
	if issuer == nil {
		return nil, jwks.ErrNoKeys
	}
	return jwks.Parse(issuer.Set())
}

// bench is a verifier that trusts an issuer, at a fixed time.
type bench struct {
	*oidc.Verifier
	issuer *jwkstest.Issuer
	all    []oidc.Issuer
	now    time.Time
}

func newBench(t testing.TB) *bench {
	t.Helper()
	b := &bench{issuer: jwkstest.New(t), now: time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)}
	b.all = []oidc.Issuer{{Name: "ci", Spec: &access.TokenIssuer{
		Issuer: b.issuer.URL, Audiences: []string{"portolan", "mesh"},
		Workloads: []access.WorkloadRule{
			{Match: []access.ClaimMatch{{Claim: []string{"sub"}, Values: []string{"repo:shop/web:*", "exact"}}, {Claim: []string{"env"}, Values: []string{"prod"}}}, Namespace: "shop", ServiceAccount: "web"},
			{Match: []access.ClaimMatch{{Claim: []string{"roles"}, Values: []string{"deployer"}}}, Namespace: "shop", ServiceAccount: "deployer"},
			{NamespaceClaim: []string{"kubernetes.io", "namespace"}, ServiceAccountClaim: []string{"kubernetes.io", "serviceaccount", "name"}},
		},
		Users: &access.UserClaims{Username: "email", Groups: "groups"},
	}}}
	b.Verifier = oidc.New(oidc.Options{
		Issuers: func() ([]oidc.Issuer, bool) { return b.all, b.all != nil },
		Keys:    direct{map[string]*jwkstest.Issuer{b.issuer.URL: b.issuer}}, TrustDomain: "cluster.local", Now: func() time.Time { return b.now },
	})
	return b
}

// claims returns the claims of a good token with some changed; nil removes one.
func (b *bench) claims(change map[string]any) map[string]any {
	out := map[string]any{
		"iss": b.issuer.URL, "aud": "portolan", "sub": "repo:shop/web:main", "env": "prod", "email": "ann@example.com", "groups": []string{"dev", "ops"},
		"iat": b.now.Unix(), "nbf": b.now.Unix(), "exp": b.now.Add(10 * time.Minute).Unix(),
	}
	for name, value := range change {
		if out[name] = value; value == nil {
			delete(out, name)
		}
	}
	return out
}

func TestAWorkloadIsWhatTheFirstRuleSays(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	k8s := func(namespace, account any) map[string]any {
		return map[string]any{"sub": "other", "kubernetes.io": map[string]any{"namespace": namespace, "serviceaccount": map[string]any{"name": account}}}
	}
	for want, claims := range map[string]map[string]any{
		"spiffe://cluster.local/ns/shop/sa/web":      {},
		"spiffe://cluster.local/ns/shop/sa/deployer": {"env": "test", "roles": []string{"reader", "deployer"}},
		"spiffe://cluster.local/ns/bank/sa/till":     k8s("bank", "till"),
		"no rule of tokenissuer/ci":                  {"sub": "repo:shop/webby:main"},
		"no rule of":                                 {"sub": "exactly"},
		"no rule":                                    k8s("bank", 7),
		"no part of an identity":                     k8s("../bank", "till"),
		"service account":                            k8s("bank", "a/sa/b"),
	} {
		who, until, err := b.Workload(t.Context(), b.issuer.Sign(t, b.claims(claims)))
		if strings.HasPrefix(want, "spiffe:") && (err != nil || who.String() != want || !until.Equal(b.now.Add(10*time.Minute))) {
			t.Errorf("got %v, %v; want %s", who, err, want)
		}
		if !strings.HasPrefix(want, "spiffe:") && (!errors.Is(err, identity.ErrUnproven) || !strings.Contains(err.Error(), want)) {
			t.Errorf("got %v, %v; want %s", who, err, want)
		}
	}
}

// TestWhatIsKnown: Knows uses only the keys that were fetched, and waits for no others.
func TestWhatIsKnown(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	good := b.issuer.Sign(t, b.claims(nil))
	if !b.Knows(good, netip.Addr{}) {
		t.Error("a good token is not known")
	}
	for name, token := range map[string]string{
		"forged":  jwkstest.New(t).Sign(t, b.claims(nil)),
		"expired": b.issuer.Sign(t, b.claims(map[string]any{"exp": b.now.Add(-time.Hour).Unix()})),
		"nobody":  b.issuer.Sign(t, b.claims(map[string]any{"sub": "exactly"})),
		"nothing": "",
	} {
		if b.Knows(token, netip.Addr{}) {
			t.Errorf("%s: it is known", name)
		}
	}
	// This fetcher does not run, so waiting for it would never end.
	fetching := oidc.New(oidc.Options{Issuers: func() ([]oidc.Issuer, bool) { return b.all, true }, Keys: jwks.New(jwks.Options{}), TrustDomain: "cluster.local", Now: func() time.Time { return b.now }})
	if fetching.Knows(good, netip.Addr{}) {
		t.Error("a token is known by keys that were not fetched")
	}
}

func TestAUserIsOfItsIssuer(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	user, err := b.User(t.Context(), b.issuer.Sign(t, b.claims(map[string]any{"groups": []any{"dev", 7, "o\nps"}})))
	if err != nil || user.Name != "ci:ann@example.com" || !slices.Equal(user.Groups, []string{"ci:dev"}) || !user.Until.Equal(b.now.Add(10*time.Minute)) {
		t.Errorf("%+v, %v", user, err)
	}
	for _, email := range []any{nil, "", 7, "a\nb", strings.Repeat("a", 300)} {
		if user, err := b.User(t.Context(), b.issuer.Sign(t, b.claims(map[string]any{"email": email}))); !errors.Is(err, identity.ErrUnproven) {
			t.Errorf("%v: %+v, %v", email, user, err)
		}
	}
	b.all[0].Spec.Users = &access.UserClaims{}
	if user, err := b.User(t.Context(), b.issuer.Sign(t, b.claims(map[string]any{"": "admins"}))); err != nil || user.Name != "ci:repo:shop/web:main" || user.Groups != nil {
		t.Errorf("by default: %+v, %v", user, err)
	}
	b.all[0].Spec.Users = nil
	if _, err := b.User(t.Context(), b.issuer.Sign(t, b.claims(nil))); !errors.Is(err, identity.ErrUnproven) || !strings.Contains(err.Error(), "vouches for no users") {
		t.Error(err)
	}
}

// TestTokensThatAreNotGenuine: a forger gets the same answer whatever is wrong.
func TestTokensThatAreNotGenuine(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	claims := b.claims(nil)
	good := b.issuer.Sign(t, claims)
	public, id := b.issuer.Public()
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	shared := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	mine, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	wide, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(good, ".")
	encode := base64.RawURLEncoding.EncodeToString
	embedded, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: mine}, &jose.SignerOptions{EmbedJWK: true})
	if err != nil {
		t.Fatal(err)
	}
	signed, err := embedded.Sign([]byte(`{"iss":"` + b.issuer.URL + `","aud":"portolan"}`))
	if err != nil {
		t.Fatal(err)
	}
	signedToken, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	other := jwkstest.New(t)
	for name, token := range map[string]string{
		"alg none":                 encode([]byte(`{"alg":"none","kid":"`+id+`"}`)) + "." + parts[1] + ".",
		"alg none, with signature": encode([]byte(`{"alg":"none"}`)) + "." + parts[1] + "." + parts[2],
		"HS256 by the public key":  jwkstest.SignWith(t, jose.HS256, shared, id, claims),
		"HS256 by its DER":         jwkstest.SignWith(t, jose.HS256, append(der, make([]byte, 8)...), id, claims),
		"another key":              jwkstest.SignWith(t, jose.ES256, mine, id, claims),
		"another key, no id":       jwkstest.SignWith(t, jose.ES256, mine, "", claims),
		"another curve":            jwkstest.SignWith(t, jose.ES384, wide, id, claims),
		"another id":               strings.Replace(good, parts[0], encode([]byte(`{"alg":"ES256","kid":"other"}`)), 1),
		"a key of its own":         signedToken,
		"another issuer":           other.Sign(t, b.claims(map[string]any{"iss": other.URL})),
		"an issuer that it is not": other.Sign(t, claims),
		"the issuer with a slash":  b.issuer.Sign(t, b.claims(map[string]any{"iss": b.issuer.URL + "/"})),
		"no issuer":                b.issuer.Sign(t, b.claims(map[string]any{"iss": nil})),
		"issuer of another type":   b.issuer.Sign(t, b.claims(map[string]any{"iss": []string{b.issuer.URL}})),
		"changed claims":           parts[0] + "." + encode([]byte(`{"iss":"`+b.issuer.URL+`","aud":"portolan","sub":"exact"}`)) + "." + parts[2],
		"no signature":             parts[0] + "." + parts[1] + ".",
		"cut":                      good[:len(good)-2],
		"critical":                 strings.Replace(good, parts[0], encode([]byte(`{"alg":"ES256","kid":"first","crit":["b64"],"b64":false}`)), 1),
		"huge":                     b.issuer.Sign(t, b.claims(map[string]any{"more": strings.Repeat("a", 20<<10)})),
		"nonsense":                 "eyJ.eyJ.eyJ",
	} {
		who, err := b.Prove(t.Context(), token, netip.Addr{})
		if !errors.Is(err, oidc.ErrUntrusted) || err.Error() != oidc.ErrUntrusted.Error() || who != (identity.Identity{}) {
			t.Errorf("%s: got %v, %v", name, who, err)
		}
	}
	for _, foreign := range []string{"", "pjt_shop_a_b", "a.b.c", good + "." + parts[1]} {
		if _, err := b.Prove(t.Context(), foreign, netip.Addr{}); !errors.Is(err, identity.ErrForeign) {
			t.Errorf("%q: %v", foreign, err)
		}
	}
}

// TestGenuineTokensThatCannotBeUsed: the holder learns what is wrong.
func TestGenuineTokensThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	after := func(d time.Duration) int64 { return b.now.Add(d).Unix() }
	for _, c := range []struct {
		change map[string]any
		want   string
	}{
		{map[string]any{"aud": "other"}, "is for another audience, and must be for portolan or mesh"},
		{map[string]any{"aud": nil}, "another audience"},
		{map[string]any{"aud": []string{"x", "mesh"}}, ""},
		{map[string]any{"exp": nil}, "does not say when it expires"},
		{map[string]any{"exp": after(-61 * time.Second)}, "expired at 2026-11-23T11:58:59Z"},
		{map[string]any{"exp": after(-59 * time.Second)}, ""},
		{map[string]any{"nbf": after(61 * time.Second)}, "is not valid before 2026-11-23T12:01:01Z"},
		{map[string]any{"nbf": after(59 * time.Second)}, ""},
		{map[string]any{"iat": after(time.Hour)}, "was issued in the future, at 2026-11-23T13:00:00Z"},
		{map[string]any{"iat": nil, "nbf": nil}, ""},
	} {
		_, err := b.Prove(t.Context(), b.issuer.Sign(t, b.claims(c.change)), netip.Addr{})
		if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, identity.ErrUnproven) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%v: %v, want %q", c.change, err, c.want)
		}
	}
	// If two TokenIssuers have the same issuer, the one with the token's audience counts.
	second := *b.all[0].Spec
	second.Audiences = []string{"other"}
	b.all = append(b.all, oidc.Issuer{Name: "second", Spec: &second})
	if user, err := b.User(t.Context(), b.issuer.Sign(t, b.claims(map[string]any{"aud": "other"}))); err != nil || user.Name != "second:ann@example.com" {
		t.Errorf("%+v, %v", user, err)
	}
	token := b.issuer.Sign(t, b.claims(nil))
	b.all = nil
	if _, err := b.Prove(t.Context(), token, netip.Addr{}); !errors.Is(err, identity.ErrUnavailable) {
		t.Errorf("before the issuers are known: %v", err)
	}
}

// TestKeysOfAnIssuerThatIsGone: known keys stay good. Without keys the server says that it
// cannot check the token.
func TestKeysOfAnIssuerThatIsGone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.all[0].Spec.CA = b.issuer.CA
	fetcher := jwks.New(jwks.Options{Now: func() time.Time { return b.now }})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { _ = fetcher.Run(ctx); close(ended) }()
	t.Cleanup(func() { cancel(); <-ended })
	v := oidc.New(oidc.Options{
		Issuers: func() ([]oidc.Issuer, bool) { return b.all, true }, Keys: fetcher, TrustDomain: "cluster.local", Now: func() time.Time { return b.now },
	})
	b.issuer.Answer(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) })
	if _, err := v.Prove(t.Context(), b.issuer.Sign(t, b.claims(nil)), netip.Addr{}); !errors.Is(err, identity.ErrUnavailable) || strings.Contains(err.Error(), "it answers 404") || !strings.Contains(identity.Reason(err), "it answers 404") {
		t.Errorf("without keys: %v", err)
	}
	b.issuer.Answer(nil)
	b.now = b.now.Add(time.Minute)
	if _, err := v.Prove(t.Context(), b.issuer.Sign(t, b.claims(nil)), netip.Addr{}); err != nil {
		t.Errorf("with keys: %v", err)
	}
	b.issuer.Answer(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	b.now = b.now.Add(time.Hour)
	if _, err := v.Prove(t.Context(), b.issuer.Sign(t, b.claims(nil)), netip.Addr{}); err != nil {
		t.Errorf("with keys of an issuer that is gone: %v", err)
	}
}

// FuzzVerify: only tokens of the issuer prove anything.
func FuzzVerify(f *testing.F) {
	b := newBench(f)
	good := b.issuer.Sign(f, b.claims(nil))
	parts := strings.Split(good, ".")
	f.Add(good)
	f.Add(parts[0] + "." + parts[1] + ".")
	f.Add("eyJhbGciOiJub25lIn0." + parts[1] + ".")
	f.Fuzz(func(t *testing.T, text string) {
		verified, err := b.Verify(t.Context(), text)
		if err == nil && !strings.HasPrefix(text, parts[0]+"."+parts[1]+".") {
			t.Errorf("%q is taken: %+v", text, verified)
		}
	})
}

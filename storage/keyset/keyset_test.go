package keyset_test

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"
	security "istio.io/api/security/v1beta1"

	"github.com/portolan-mesh/portolan/storage/keyset"
)

func TestSources(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, c := range []struct {
		rule *security.JWTRule
		want string // empty for none
	}{
		{&security.JWTRule{Issuer: "https://a.example/", JwksUri: "https://b.example/keys"}, "https://b.example/keys"},
		{&security.JWTRule{Issuer: "https://a.example/"}, "https://a.example/.well-known/openid-configuration"},
		{&security.JWTRule{Issuer: "https://a.example"}, "https://a.example/.well-known/openid-configuration"},
		{&security.JWTRule{JwksUri: "https://a.example"}, "https://a.example"},
		{&security.JWTRule{Issuer: "a", Jwks: "{}"}, ""},
	} {
		got, ok := keyset.SourceOf(c.rule)
		if ok != (c.want != "") || ok && got.String() != c.want {
			t.Errorf("%v: %v", c.rule, got)
		}
		if other, taken := seen[got.Name()]; ok && taken {
			t.Errorf("%s has the name of %s", got, other)
		}
		seen[got.Name()] = got.String()
	}
}

// TestInlineKeysHaveNoPrivateParts: what proxies get of the keys of a policy is public.
func TestInlineKeysHaveNoPrivateParts(t *testing.T) {
	t.Parallel()
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	weak, err := rsa.GenerateKey(rand.Reader, 1024) // refused where keys are fetched
	if err != nil {
		t.Fatal(err)
	}
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{
		{Key: curve, KeyID: "private", Algorithm: "ES256"}, {Key: curve.Public(), KeyID: "public", Use: "sig"},
		{Key: edwards, KeyID: "edwards"}, {Key: weak.Public(), KeyID: "weak"},
		{Key: []byte("a secret that both know, in 32 B"), KeyID: "shared"}, {Key: curve.Public(), KeyID: "encryption", Use: "enc"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	got, err := keyset.ReadInline(string(text))
	if err != nil {
		t.Fatal(err)
	}
	if want := []keyset.Trait{keyset.Private, keyset.Fine, keyset.Private, keyset.Weak, keyset.Shared, keyset.Unusable}; !slices.Equal(got.Traits, want) {
		t.Errorf("traits %v, want %v", got.Traits, want)
	}
	public := got.Public()
	var set jose.JSONWebKeySet
	if err := json.Unmarshal([]byte(public), &set); err != nil || len(set.Keys) != 5 || strings.Contains(public, `"d"`) {
		t.Fatalf("%v, %s", err, public)
	}
	again, err := keyset.ReadInline(public)
	if err != nil || again.Public() != public || !set.Key("private")[0].IsPublic() || !set.Key("edwards")[0].IsPublic() {
		t.Errorf("%v, %s", err, public)
	}
}

func FuzzReadInline(f *testing.F) {
	f.Add(`{"keys":[{"kty":"EC","crv":"P-256","x":"AQ","y":"AQ"}]}`)
	f.Add(`{"keys":[{"kty":"oct","k":"AQ"}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		keys, err := keyset.ReadInline(text)
		if err != nil {
			return
		}
		if _, err := keyset.ReadInline(keys.Public()); err != nil {
			t.Errorf("%s: %v", keys.Public(), err)
		}
	})
}

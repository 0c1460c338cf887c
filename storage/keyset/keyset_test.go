package keyset_test

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"math/big"
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

// TestKeysThatProxiesTake: a key that Envoy would leave out verifies nothing.
func TestKeysThatProxiesTake(t *testing.T) {
	t.Parallel()
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	of := func(modulus int, exponent int) *rsa.PublicKey {
		n := new(big.Int).Lsh(big.NewInt(1), uint(modulus-1))
		return &rsa.PublicKey{N: n.Add(n, big.NewInt(1)), E: exponent}
	}
	for name, c := range map[string]struct {
		key  jose.JSONWebKey
		want bool
	}{
		"curve":                        {jose.JSONWebKey{Key: curve.Public()}, true},
		"curve, private":               {jose.JSONWebKey{Key: curve, Algorithm: "ES256"}, true},
		"curve for RSA":                {jose.JSONWebKey{Key: curve.Public(), Algorithm: "RS256"}, false},
		"curve for encryption":         {jose.JSONWebKey{Key: curve.Public(), Use: "enc"}, false},
		"RSA":                          {jose.JSONWebKey{Key: of(2048, 65537), Algorithm: "PS256"}, true},
		"RSA with 3":                   {jose.JSONWebKey{Key: of(2048, 3)}, true},
		"RSA with 1":                   {jose.JSONWebKey{Key: of(2048, 1)}, false},
		"RSA with 4":                   {jose.JSONWebKey{Key: of(2048, 4)}, false},
		"RSA that is even":             {jose.JSONWebKey{Key: &rsa.PublicKey{N: new(big.Int).Lsh(big.NewInt(1), 2047), E: 3}}, false},
		"RSA of 16384":                 {jose.JSONWebKey{Key: of(16384, 3)}, true},
		"RSA of 16385":                 {jose.JSONWebKey{Key: of(16385, 3)}, false},
		"RSA for another algorithm":    {jose.JSONWebKey{Key: of(2048, 3), Algorithm: "RSA-OAEP"}, false},
		"secret":                       {jose.JSONWebKey{Key: []byte("s"), Algorithm: "HS256"}, true},
		"secret that is empty":         {jose.JSONWebKey{Key: []byte{}}, false},
		"secret for another algorithm": {jose.JSONWebKey{Key: []byte("s"), Algorithm: "A128KW"}, false},
		"nothing":                      {jose.JSONWebKey{}, false},
	} {
		if got := keyset.Verifies(c.key); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

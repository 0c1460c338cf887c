package keyset

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-jose/go-jose/v4"
)

// MinRSA is the least size in bits of an RSA key that is taken for safe.
const MinRSA = 2048

// Trait is what is odd about a key.
type Trait int

// The traits.
const (
	// Fine: a public key.
	Fine Trait = iota
	// Private: the key comes with its private part.
	Private
	// Shared: the key is a secret that the issuer and all who verify share.
	Shared
	// Weak: the key is too short.
	Weak
	// Unusable: the key does not verify signatures.
	Unusable
)

// Inline are the keys that a policy contains.
type Inline struct {
	keys []jose.JSONWebKey
	// Traits are those of the keys, in order.
	Traits []Trait
}

// ReadInline reads a JSON Web Key Set (RFC 7517, section 5) as strictly as Istio: all its keys
// must be keys.
func ReadInline(text string) (*Inline, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal([]byte(text), &set); err != nil {
		return nil, fmt.Errorf("is no JSON Web Key Set: %w", err)
	}
	if len(set.Keys) == 0 {
		return nil, errors.New(`is no JSON Web Key Set: its "keys" are missing`)
	}
	out := &Inline{}
	for i, raw := range set.Keys {
		var key jose.JSONWebKey
		if err := json.Unmarshal(raw, &key); err != nil {
			return nil, fmt.Errorf("has something at keys[%d] that is no key: %s", i, strings.TrimPrefix(err.Error(), "go-jose/go-jose: "))
		}
		trait := traitOf(key)
		out.Traits = append(out.Traits, trait)
		if trait != Unusable {
			out.keys = append(out.keys, key)
		}
	}
	if len(out.keys) == 0 {
		return nil, errors.New("has no key that verifies signatures")
	}
	return out, nil
}

// Public returns the keys as a JSON Web Key Set without private parts.
func (i *Inline) Public() string { return Format(i.keys) }

func traitOf(key jose.JSONWebKey) Trait {
	if !Verifies(key) {
		return Unusable
	}
	if _, shared := key.Key.([]byte); shared {
		return Shared
	}
	if !key.IsPublic() {
		return Private
	}
	if weak, ok := key.Key.(*rsa.PublicKey); ok && weak.N.BitLen() < MinRSA {
		return Weak
	}
	return Fine
}

// Verifies says whether a key verifies signatures at proxies. A private key does by its public
// part. BoringSSL bounds RSA, and an algorithm must be for such a key.
// https://github.com/envoyproxy/envoy/blob/main/source/common/jwt/jwks.cc
func Verifies(key jose.JSONWebKey) bool {
	if key.Use == "enc" {
		return false
	}
	if secret, shared := key.Key.([]byte); shared {
		return len(secret) > 0 && signsBy(key, "HS")
	}
	if !key.Valid() {
		return false
	}
	switch public := key.Public().Key.(type) {
	case *rsa.PublicKey:
		return signsBy(key, "RS", "PS") && public.N.BitLen() <= 16384 && public.E > 2 && public.E%2 == 1 && public.N.Bit(0) == 1
	case *ecdsa.PublicKey:
		return signsBy(key, "ES")
	case ed25519.PublicKey:
		return signsBy(key, "EdDSA")
	}
	return false
}

// signsBy says whether the algorithm of a key, if it has one, is of one of some families.
func signsBy(key jose.JSONWebKey, families ...string) bool {
	return key.Algorithm == "" || slices.ContainsFunc(families, func(family string) bool {
		size, ok := strings.CutPrefix(key.Algorithm, family)
		return ok && slices.Contains([]string{"", "256", "384", "512"}, size)
	})
}

// Format writes keys as a JSON Web Key Set of what verification needs: public parts, ids and
// algorithms. It is equal for equal keys in whatever order. Shared secrets stay as they are.
func Format(keys []jose.JSONWebKey) string {
	texts := make([]string, 0, len(keys))
	for _, key := range keys {
		if _, shared := key.Key.([]byte); !shared && !key.IsPublic() {
			key = key.Public()
		}
		text, err := json.Marshal(jose.JSONWebKey{Key: key.Key, KeyID: key.KeyID, Algorithm: key.Algorithm, Use: key.Use})
		if err != nil {
			panic(err) // every key was parsed from JSON
		}
		texts = append(texts, string(text))
	}
	slices.Sort(texts)
	return `{"keys":[` + strings.Join(slices.Compact(texts), ",") + `]}`
}

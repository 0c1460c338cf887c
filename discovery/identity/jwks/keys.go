package jwks

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/go-jose/go-jose/v4"

	"github.com/portolan-mesh/portolan/storage/keyset"
)

const maxKeys = 100

// Keys holds the public keys of a source, which verify signatures. It is never modified.
type Keys struct{ keys []jose.JSONWebKey }

// Find returns the keys that may have signed a token: the key with the given id or, without
// one, all keys for the algorithm.
func (k *Keys) Find(id, algorithm string) []jose.JSONWebKey {
	var out []jose.JSONWebKey
	for _, key := range k.keys {
		if (id == "" || key.KeyID == id) && (key.Algorithm == "" || key.Algorithm == algorithm) && signs(key.Key, algorithm) {
			out = append(out, key)
		}
	}
	return out
}

// Public returns the keys as a JSON Web Key Set, which is equal for equal keys.
func (k *Keys) Public() string { return keyset.Format(k.keys) }

func (k *Keys) has(id string) bool {
	for _, key := range k.keys {
		if key.KeyID == id {
			return true
		}
	}
	return false
}

// Algorithms returns the signature algorithms with public keys: none that needs a secret
// shared with the verifier.
func Algorithms() []jose.SignatureAlgorithm {
	return []jose.SignatureAlgorithm{
		jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
	}
}

// signs says whether a key fits an algorithm.
func signs(key any, algorithm string) bool {
	switch key := key.(type) {
	case *rsa.PublicKey:
		return strings.HasPrefix(algorithm, "RS") || strings.HasPrefix(algorithm, "PS")
	case *ecdsa.PublicKey:
		return algorithm == map[int]string{256: "ES256", 384: "ES384", 521: "ES512"}[key.Curve.Params().BitSize]
	case ed25519.PublicKey:
		return algorithm == "EdDSA"
	}
	return false
}

// Parse reads a JSON Web Key Set. It leaves out keys that verify no signature: those for
// encryption, shared and private ones, and weak ones. It fails if no key is left.
func Parse(text []byte) (*Keys, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(text, &set); err != nil {
		return nil, fmt.Errorf("it is no JSON Web Key Set: %w", err)
	}
	if len(set.Keys) > maxKeys {
		return nil, fmt.Errorf("it has %d keys, and may have %d", len(set.Keys), maxKeys)
	}
	out := &Keys{}
	for _, raw := range set.Keys {
		var key jose.JSONWebKey
		if json.Unmarshal(raw, &key) != nil || !keyset.Verifies(key) || !key.IsPublic() {
			continue
		}
		if weak, ok := key.Key.(*rsa.PublicKey); ok && weak.N.BitLen() < keyset.MinRSA {
			continue
		}
		out.keys = append(out.keys, key)
	}
	if len(out.keys) == 0 {
		return nil, errors.New("it has no public key that verifies signatures")
	}
	return out, nil
}

// CheckURL returns why keys may not be fetched from a URL, nil if they may: it must be https,
// or http on this machine.
func CheckURL(text string) error {
	if err := checkForm(text); err != nil {
		return err
	}
	u, _ := url.Parse(text)
	if u.Scheme == "https" || u.Scheme == "http" && keyset.OnThisMachine(u.Hostname()) {
		return nil
	}
	return fmt.Errorf("%q is not https: keys that come in plaintext prove nothing", text)
}

func checkForm(text string) error {
	if u, err := url.Parse(text); err != nil || u.Host == "" || u.User != nil || u.Fragment != "" {
		return fmt.Errorf("%q is no URL such as https://accounts.example/keys", text)
	}
	return nil
}

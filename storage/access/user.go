package access

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"
)

// User is somebody who calls the config API. The object has the user's name.
type User struct {
	// Groups are the user's groups, in addition to those that a credential names.
	Groups []string `json:"groups,omitempty"`
	// Disabled refuses the user, whatever the credential.
	Disabled bool `json:"disabled,omitempty"`
	// Tokens are the bearer tokens that authenticate the user. Servers make them.
	Tokens []Token `json:"tokens,omitempty"`
}

// Token describes a bearer token. The token itself is not stored.
type Token struct {
	// ID names the token. It is no secret.
	ID string `json:"id,omitempty"`
	// Hash is HashOf of the token. Documents lack it.
	Hash []byte `json:"hash,omitempty"`
	// Note says what the token is for.
	Note string `json:"note,omitempty"`
	// The token is valid from Created to Expires, or for ever if Expires is zero.
	Created time.Time `json:"created,omitzero"`
	Expires time.Time `json:"expires,omitzero"`
}

// HashOf returns the hash that is stored for a token. Tokens are random, so they need no
// salt.
func HashOf(token string) []byte {
	hash := sha256.Sum256([]byte(token))
	return hash[:]
}

// Shown implements config.Veiled: it is the spec without the hashes.
func (u *User) Shown() any {
	out := *u
	out.Tokens = make([]Token, len(u.Tokens))
	for i, t := range u.Tokens {
		t.Hash = nil
		out.Tokens[i] = t
	}
	if len(out.Tokens) == 0 {
		out.Tokens = nil
	}
	return &out
}

// CheckStored implements config.Veiled: it refuses a token without a hash, or with the hash
// of another token.
func (u *User) CheckStored() error {
	for i, t := range u.Tokens {
		if len(t.Hash) != sha256.Size {
			return fmt.Errorf("spec.tokens[%d].hash: is not of a token", i)
		}
		for _, other := range u.Tokens[:i] {
			if other.ID == t.ID || bytes.Equal(other.Hash, t.Hash) {
				return errors.New("spec.tokens: has a token twice")
			}
		}
	}
	return nil
}

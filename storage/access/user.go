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
	// Groups are those that the user is in, beside the ones that a credential brings.
	Groups []string `json:"groups,omitempty"`
	// Disabled turns the user away, whatever the credential is.
	Disabled bool `json:"disabled,omitempty"`
	// Tokens are what the user can prove to be the user with. Servers make them.
	Tokens []Token `json:"tokens,omitempty"`
}

// Token is what is kept of a bearer token.
type Token struct {
	// ID names the token. It is no secret.
	ID string `json:"id,omitempty"`
	// Hash is the HashOf the token. No document has it.
	Hash []byte `json:"hash,omitempty"`
	// Note says what the token is for.
	Note string `json:"note,omitempty"`
	// Created and Expires bound the life of the token. It has no end if Expires is zero.
	Created time.Time `json:"created,omitzero"`
	Expires time.Time `json:"expires,omitzero"`
}

// HashOf returns what is kept of a token. A token is random enough for one plain hash.
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

package access

import (
	"crypto/sha256"
	"fmt"
	"time"
)

// JoinToken is a token whose holder gets a certificate of a service account in the token's
// namespace or, with Member, joins the store as a member. Servers create the object and
// update it at each use.
type JoinToken struct {
	ServiceAccount string `json:"serviceAccount,omitempty"`
	// Expires is when the token becomes invalid.
	Expires time.Time `json:"expires,omitzero"`
	// Uses is how often the token may be used, and Used how often it was.
	Uses int `json:"uses,omitempty"`
	Used int `json:"used,omitempty"`
	// Sources are the ranges of addresses from which it may be used; none stands for
	// all addresses.
	Sources []string `json:"sources,omitempty"`
	// Hash is the SHA-256 of the token. Documents lack it.
	Hash []byte `json:"hash,omitempty"`
	// Member is the member of the store that may join with the token; nil for the token of
	// a workload.
	Member *StoreMember `json:"member,omitempty"`
}

// StoreMember is a member that is to join the store.
type StoreMember struct {
	// Name is the member's name. The other members reach it at PeerURL, the other servers
	// at ClientURL.
	Name      string `json:"name,omitempty"`
	PeerURL   string `json:"peerUrl,omitempty"`
	ClientURL string `json:"clientUrl,omitempty"`
	// Key is the SHA-256 of the public key of the machine that has used the token.
	Key []byte `json:"key,omitempty"`
}

// Shown implements config.Veiled: it is the spec without the hash.
func (t *JoinToken) Shown() any {
	out := *t
	out.Hash = nil
	return &out
}

// CheckStored implements config.Veiled: a token without a hash proves nothing.
func (t *JoinToken) CheckStored() error {
	if len(t.Hash) != sha256.Size {
		return fmt.Errorf("it has a hash of %d bytes, and servers make one of %d", len(t.Hash), sha256.Size)
	}
	return nil
}

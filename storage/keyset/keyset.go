// Package keyset is the spec of a KeySet: the public keys by which proxies verify the tokens of
// an issuer, as the leading server fetched them. It also reads the keys that a policy contains.
//
// The leader fetches the keys of each source once for all servers, and writes them as a KeySet
// of the root namespace. So all servers give proxies the same keys, and a server that starts
// while the issuer is away gives those that were fetched before.
package keyset

import (
	"crypto/sha256"
	"encoding/hex"
	"net"
	"strings"
	"time"

	security "istio.io/api/security/v1beta1"
)

// Source is where the keys of tokens come from. It is comparable.
type Source struct {
	// URL is the address of the keys. If Discover is set, it is the issuer, whose document
	// names the address of the keys (OpenID Connect Discovery 1.0, section 4).
	URL      string `json:"url"`
	Discover bool   `json:"discover,omitempty"`
}

// SourceOf returns where the keys of a rule are fetched. It is false for a rule that contains
// its keys. (Istio: JwksResolver.BuildLocalJwks.)
func SourceOf(rule *security.JWTRule) (Source, bool) {
	switch {
	case rule.GetJwks() != "":
		return Source{}, false
	case rule.GetJwksUri() != "":
		return Source{URL: rule.GetJwksUri()}, true
	}
	return Source{URL: rule.GetIssuer(), Discover: true}, true
}

// Name returns the name of the KeySet of a source.
func (s Source) Name() string {
	kind := "keys"
	if s.Discover {
		kind = "issuer"
	}
	sum := sha256.Sum256([]byte(s.URL))
	return kind + "-" + hex.EncodeToString(sum[:16])
}

// String returns the source in words.
func (s Source) String() string {
	if s.Discover {
		return strings.TrimSuffix(s.URL, "/") + "/.well-known/openid-configuration"
	}
	return s.URL
}

// Fetched is the spec of a KeySet.
type Fetched struct {
	Source
	// Keys is a JSON Web Key Set of public keys (RFC 7517), empty if none were ever fetched.
	Keys string `json:"keys,omitempty"`
	// Since is the minute when these keys were fetched for the first time.
	Since *time.Time `json:"since,omitempty"`
	// Error says why the last fetch failed, empty if it succeeded.
	Error string `json:"error,omitempty"`
}

// Same says whether two specs are equal; either may be nil.
func (f *Fetched) Same(o *Fetched) bool {
	return f != nil && o != nil && f.Source == o.Source && f.Keys == o.Keys && f.Error == o.Error
}

// OnThisMachine says whether the host of a URL is this machine.
func OnThisMachine(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

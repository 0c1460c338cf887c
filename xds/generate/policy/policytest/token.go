package policytest

import (
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	_ "crypto/sha256" // for signatures
	_ "crypto/sha512"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"hash"
	"maps"
	"math/big"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// Token is a token of a request.
type Token struct {
	// Header, Param or Cookie is where it is: in the header authorization if all are empty.
	// Prefix is before it in a header; "Bearer " for authorization.
	Header, Prefix, Param, Cookie string
	Claims                        map[string]any
	// Expires and Begins are claims, as durations from the present.
	Expires, Begins string
	// Key signs the token: one of keys, ec if it is empty, or "public" for an HMAC by the public
	// key of rsa, as PEM. Algorithm and KeyID are what the token says of the key, if
	// they differ; a KeyID of "-" is none.
	Key, Algorithm, KeyID string
	// Pad is the length of a claim that says nothing.
	Pad int
	// Raw is there instead of a token. TOKEN in it stands for the token, and PAYLOAD for that of
	// another.
	Raw string
}

// signer is a key with the name of its algorithm.
type signer struct {
	algorithm string
	key       crypto.Signer
	secret    []byte
}

// keys are those that sign tokens, by their ids.
var keys = sync.OnceValue(func() map[string]signer {
	long, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return map[string]signer{
		"ec": {"ES256", curveKey(elliptic.P256()), nil}, "p384": {"ES384", curveKey(elliptic.P384()), nil}, "p521": {"ES512", curveKey(elliptic.P521()), nil},
		"rsa": {"RS256", long, nil}, "pss": {"PS512", long, nil}, "ed": {"EdDSA", ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)), nil},
		"b": {"ES256", curveKey(elliptic.P256()), nil}, "other": {"ES256", curveKey(elliptic.P256()), nil},
		"shared": {"HS256", nil, []byte("a secret that both know, in 32 B")},
	}
})

func curveKey(c elliptic.Curve) *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(c, rand.Reader)
	if err != nil {
		panic(err) // the random numbers of the machine never fail
	}
	return key
}

// sets are the key sets that rules of the table name, by what keys they have. The keys of SET-BARE
// have no ids and no algorithms, and those of SET-PRIVATE their private parts.
func sets() map[string][]string {
	return map[string][]string{"SET-A": {"ec", "p384", "p521", "rsa", "pss", "ed"}, "SET-B": {"b"}, "SET-BARE": {"rsa", "ec"}, "SET-SHARED": {"shared"}, "SET-PRIVATE": {"ec", "rsa"}}
}

// keySet returns a key set of the table as text.
func keySet(name string) string {
	var out jose.JSONWebKeySet
	for _, id := range sets()[name] {
		s := keys()[id]
		key := jose.JSONWebKey{Key: s.secret, KeyID: id, Algorithm: s.algorithm}
		if s.key != nil {
			key.Key = s.key.Public()
		}
		if name == "SET-PRIVATE" {
			key.Key = s.key
		}
		if name == "SET-BARE" {
			key.KeyID, key.Algorithm = "", ""
		}
		out.Keys = append(out.Keys, key)
	}
	return string(encode(out))
}

func encode(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // of a table
	}
	return text
}

// place puts the tokens of a request into it.
func (r Request) place() Request {
	tokens := r.Tokens
	if r.Claims != nil && len(tokens) == 0 {
		tokens = []Token{{Claims: r.Claims}}
	}
	if len(tokens) > 0 {
		r.Headers = maps.Clone(r.Headers)
	}
	if r.Headers == nil {
		r.Headers = map[string]string{}
	}
	for _, t := range tokens {
		text := t.text()
		switch {
		case t.Param != "":
			join := "?"
			if strings.Contains(r.Path, "?") {
				join = "&"
			}
			r.Path += join + t.Param + "=" + url.QueryEscape(text)
		case t.Cookie != "":
			r.Headers["cookie"] = strings.TrimPrefix(r.Headers["cookie"]+"; "+t.Cookie+"="+text, "; ")
		case t.Header != "":
			r.Headers[t.Header] = t.Prefix + text
		default:
			r.Headers["authorization"] = cmp.Or(t.Prefix, "Bearer ") + text
		}
	}
	return r
}

// text returns the token.
func (t Token) text() string {
	by := keys()[cmp.Or(t.Key, "ec")]
	if t.Key == "public" {
		der, err := x509.MarshalPKIXPublicKey(keys()["rsa"].key.Public())
		if err != nil {
			panic(err) // it is a key
		}
		by = signer{"HS256", nil, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})}
	}
	header := map[string]any{"alg": cmp.Or(t.Algorithm, by.algorithm)}
	if id := cmp.Or(t.KeyID, t.Key, "ec"); id != "-" {
		header["kid"] = id
	}
	claims := maps.Clone(t.Claims)
	for name, after := range map[string]string{"exp": t.Expires, "nbf": t.Begins} {
		if d, err := time.ParseDuration(after); err == nil {
			claims[name] = time.Now().Add(d).Unix()
		}
	}
	if t.Pad > 0 {
		claims["pad"] = strings.Repeat("x", t.Pad)
	}
	signed := part(encode(header)) + "." + part(encode(claims))
	token := signed + "." + part(by.sign(signed, header["alg"].(string)))
	if t.Raw == "" {
		return token
	}
	return strings.NewReplacer("TOKEN", token, "SIGNED", signed, "SIGNATURE", strings.TrimPrefix(token, signed+"."),
		"HEADER", part(encode(header)), "ROOT", part([]byte(`{"iss":"https://a.example","sub":"root"}`))).Replace(t.Raw)
}

func part(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// sign signs with the hash of an algorithm, whatever the key.
func (s signer) sign(text, algorithm string) []byte {
	of := crypto.SHA256
	switch {
	case strings.HasSuffix(algorithm, "384"):
		of = crypto.SHA384
	case strings.HasSuffix(algorithm, "512"):
		of = crypto.SHA512
	}
	if s.key == nil {
		return digest(hmac.New(of.New, s.secret), text)
	}
	hashed, options := digest(of.New(), text), crypto.SignerOpts(of)
	switch s.algorithm {
	case "EdDSA":
		hashed, options = []byte(text), crypto.Hash(0)
	case "PS512":
		options = &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash, Hash: of}
	}
	if key, ok := s.key.(*ecdsa.PrivateKey); ok {
		r, v, err := ecdsa.Sign(rand.Reader, key, hashed)
		if err != nil {
			panic(err) // as for curveKey
		}
		return pair(r, v, (key.Curve.Params().BitSize+7)/8)
	}
	out, err := s.key.Sign(rand.Reader, hashed, options)
	if err != nil {
		panic(err) // as for curveKey
	}
	return out
}

func pair(r, s *big.Int, size int) []byte {
	return append(r.FillBytes(make([]byte, size)), s.FillBytes(make([]byte, size))...)
}

func digest(h hash.Hash, text string) []byte {
	h.Write([]byte(text))
	return h.Sum(nil)
}

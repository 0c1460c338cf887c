package simulate

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rsa"
	_ "crypto/sha256" // the hashes of signatures
	_ "crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// The reasons for which Envoy refuses a token, in its words.
// https://github.com/envoyproxy/envoy/blob/main/source/common/jwt/status.cc
const (
	tokenMissing       = "Jwt is missing"
	tokenFormat        = "Jwt is not in the form of Header.Payload.Signature with two dots and 3 sections"
	tokenHeaderBase64  = "Jwt header is an invalid Base64url encoded"
	tokenHeaderJSON    = "Jwt header is an invalid JSON"
	tokenAlgMissing    = "Jwt header [alg] field is required and must be a string"
	tokenAlgUnknown    = "Jwt header [alg] is not supported"
	tokenKeyID         = "Jwt header [kid] field is not a string"
	tokenPayloadBase64 = "Jwt payload is an invalid Base64url encoded"
	tokenPayloadJSON   = "Jwt payload is an invalid JSON"
	tokenAudienceType  = "Jwt payload [aud] field is not a string or string list"
	tokenSignature     = "Jwt signature is an invalid Base64url encoded"
	tokenEarly         = "Jwt not yet valid"
	tokenExpired       = "Jwt is expired"
	tokenIssuer        = "Jwt issuer is not configured"
	tokenAudience      = "Audiences in Jwt are not allowed"
	tokenUnverified    = "Jwt verification fails"
	tokenNoKey         = "Jwks doesn't have key to match kid or alg from Jwt"
	tokenNoKeys        = "Jwks doesn't have any valid public key"
)

// token is a JSON Web Token.
type token struct {
	algorithm, keyID string
	issuer           string
	audiences        []string
	early, expires   float64 // 0 for none
	claims           map[string]any
	payload          string // as the token has it
	signed           string
	signature        []byte
}

// readToken parses a token. Its second result is why Envoy would not, empty if it would.
func readToken(text string) (token, string) {
	parts := strings.Split(text, ".")
	if len(parts) != 3 || slices.Contains(parts, "") {
		return token{}, tokenFormat
	}
	t := token{signed: parts[0] + "." + parts[1], payload: parts[1]}
	if fault := t.readHeader(parts[0]); fault != "" {
		return token{}, fault
	}
	if fault := t.readPayload(parts[1]); fault != "" {
		return token{}, fault
	}
	var ok bool
	if t.signature, ok = unescape(parts[2]); !ok {
		return token{}, tokenSignature
	}
	return t, ""
}

func unescape(text string) ([]byte, bool) {
	out, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(text, "="))
	return out, err == nil
}

func (t *token) readHeader(part string) (fault string) {
	text, ok := unescape(part)
	if !ok {
		return tokenHeaderBase64
	}
	var header map[string]any
	if json.Unmarshal(text, &header) != nil || header == nil {
		return tokenHeaderJSON
	}
	if t.algorithm, ok = header["alg"].(string); !ok {
		return tokenAlgMissing
	}
	if !slices.Contains([]string{
		"ES256", "ES384", "ES512", "HS256", "HS384", "HS512", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "EdDSA",
	}, t.algorithm) {
		return tokenAlgUnknown
	}
	if id, present := header["kid"]; present {
		if t.keyID, ok = id.(string); !ok {
			return tokenKeyID
		}
	}
	return ""
}

func (t *token) readPayload(part string) (fault string) {
	text, ok := unescape(part)
	if !ok {
		return tokenPayloadBase64
	}
	if json.Unmarshal(text, &t.claims) != nil || t.claims == nil {
		return tokenPayloadJSON
	}
	for _, name := range []string{"iss", "sub", "iat", "nbf", "exp", "jti"} {
		switch value := t.claims[name].(type) {
		case nil:
			if _, present := t.claims[name]; !present {
				continue
			}
		case string:
			if name == "iss" || name == "sub" || name == "jti" {
				continue
			}
		case float64:
			if name != "iat" && name != "nbf" && name != "exp" {
				break
			}
			if value < 0 || value >= 1<<64 {
				return "Jwt payload [" + name + "] field is not a positive 64 bit integer"
			}
			continue
		}
		if name == "iat" || name == "nbf" || name == "exp" {
			return "Jwt payload [" + name + "] field is not an integer"
		}
		return "Jwt payload [" + name + "] field is not a string"
	}
	t.issuer, _ = t.claims["iss"].(string)
	t.early, _ = t.claims["nbf"].(float64)
	t.expires, _ = t.claims["exp"].(float64)
	return t.readAudiences()
}

func (t *token) readAudiences() (fault string) {
	switch value := t.claims["aud"].(type) {
	case string:
		t.audiences = []string{value}
	case []any:
		for _, one := range value {
			text, ok := one.(string)
			if !ok {
				return tokenAudienceType
			}
			t.audiences = append(t.audiences, text)
		}
	default:
		if _, present := t.claims["aud"]; present {
			return tokenAudienceType
		}
	}
	return ""
}

// clockSkew is how far clocks may differ. It is the default of Envoy.
const clockSkew = 60

// timely says why a token is not valid at a time, empty if it is.
func (t token) timely(at time.Time) (fault string) {
	now := float64(at.Unix())
	switch {
	case now+clockSkew < t.early:
		return tokenEarly
	case t.expires != 0 && now > t.expires+clockSkew:
		return tokenExpired
	}
	return ""
}

// isFor says whether a token is for one of some audiences. None means any. Schemes and slashes
// at the end do not count.
func (t token) isFor(audiences []string) bool {
	bare := func(s string) string {
		for _, scheme := range []string{"https://", "http://"} {
			if rest, ok := strings.CutPrefix(s, scheme); ok {
				s = rest
				break
			}
		}
		return strings.TrimSuffix(s, "/")
	}
	return len(audiences) == 0 || slices.ContainsFunc(t.audiences, func(own string) bool {
		return slices.ContainsFunc(audiences, func(allowed string) bool { return bare(allowed) == bare(own) })
	})
}

// verify says why no key verifies the signature, empty if one does.
func (t token) verify(keys []jose.JSONWebKey) (fault string) {
	if len(keys) == 0 {
		return tokenNoKeys
	}
	fault = tokenNoKey
	for _, key := range keys {
		if t.keyID != "" && key.KeyID != "" && t.keyID != key.KeyID || key.Algorithm != "" && key.Algorithm != t.algorithm {
			continue
		}
		if t.signedBy(key.Key) {
			return ""
		}
		fault = tokenUnverified
	}
	return fault
}

func (t token) signedBy(key any) bool {
	hash := crypto.SHA256
	switch {
	case strings.HasSuffix(t.algorithm, "384"):
		hash = crypto.SHA384
	case strings.HasSuffix(t.algorithm, "512"):
		hash = crypto.SHA512
	}
	of := hash.New()
	of.Write([]byte(t.signed))
	digest := of.Sum(nil)
	switch key := key.(type) {
	case *ecdsa.PublicKey:
		half := len(t.signature) / 2
		r, s := new(big.Int).SetBytes(t.signature[:half]), new(big.Int).SetBytes(t.signature[half:2*half])
		return ecdsa.Verify(key, digest, r, s)
	case *rsa.PublicKey:
		if strings.HasPrefix(t.algorithm, "RS") {
			return rsa.VerifyPKCS1v15(key, hash, digest, t.signature) == nil
		}
		return strings.HasPrefix(t.algorithm, "PS") && rsa.VerifyPSS(key, hash, digest, t.signature, nil) == nil
	case ed25519.PublicKey:
		return ed25519.Verify(key, []byte(t.signed), t.signature)
	case []byte:
		mac := hmac.New(hash.New, key)
		mac.Write([]byte(t.signed))
		return strings.HasPrefix(t.algorithm, "HS") && hmac.Equal(mac.Sum(nil), t.signature)
	}
	return false
}

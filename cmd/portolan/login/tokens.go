package login

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"golang.org/x/oauth2"
)

// Tokens are what a login came to. Both are secret.
type Tokens struct {
	// ID is the ID token.
	ID string
	// Refresh earns the next tokens; empty if the provider gives none.
	Refresh string
}

// maxToken bounds the bytes of an ID token, as servers do.
const maxToken = 16 << 10

// algorithms are those that servers verify.
var algorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}

// tokens are those of an answer. Who has given them is known by the certificate of the
// provider; the server verifies the signature.
func (s *session) tokens(t *oauth2.Token) (Tokens, error) {
	text, _ := t.Extra("id_token").(string)
	if text == "" {
		return Tokens{}, s.says("gives no ID token: allow the client %q the scope openid there; %w", s.ID, ErrEnded)
	}
	claims, err := claimsOf(text)
	switch {
	case err != nil:
		return Tokens{}, s.says("gives an ID token that no server takes: %w", err)
	case claims.Issuer != s.Issuer || !slices.Contains(claims.Audience, s.ID):
		return Tokens{}, s.says("gives an ID token that is not its own, or not for the client %q", s.ID)
	}
	return Tokens{ID: text, Refresh: t.RefreshToken}, nil
}

// claimsOf are the claims of an ID token, whose signature is not verified. The error does not
// have the token.
func claimsOf(text string) (jwt.Claims, error) {
	var claims jwt.Claims
	if len(text) > maxToken {
		return claims, fmt.Errorf("it has %d bytes, and may have %d: have the provider put less into it, such as fewer groups", len(text), maxToken)
	}
	token, err := jwt.ParseSigned(text, algorithms)
	if err != nil || token.UnsafeClaimsWithoutVerification(&claims) != nil {
		return claims, errors.New("it is no JWT that is signed with RSA, ECDSA or EdDSA")
	}
	if claims.Expiry == nil {
		return claims, errors.New("it does not say when it expires")
	}
	return claims, nil
}

// ahead is how long before its end an ID token is replaced, at the most a quarter of its
// life.
const ahead = 30 * time.Second

// Due returns when an ID token is to be replaced, and when it ends; the zero times for what
// is no ID token.
func Due(id string) (due, until time.Time) {
	claims, err := claimsOf(id)
	if err != nil {
		return time.Time{}, time.Time{}
	}
	early := ahead
	until = claims.Expiry.Time()
	if claims.IssuedAt != nil {
		early = min(early, max(until.Sub(claims.IssuedAt.Time())/4, 0))
	}
	return until.Add(-early), until
}

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

// Tokens is the result of a login. Both are secret.
type Tokens struct {
	// ID is the ID token.
	ID string
	// Refresh gets the next tokens; empty if the provider gives none.
	Refresh string
}

// maxToken bounds the bytes of an ID token, as servers do.
const maxToken = 16 << 10

// algorithms are the signature algorithms that servers verify.
var algorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}

// The TLS certificate of the provider shows who sent the tokens; the server verifies the
// signature.
func (s *session) tokens(t *oauth2.Token) (Tokens, error) {
	text, _ := t.Extra("id_token").(string)
	if text == "" {
		return Tokens{}, s.errorf("gives no ID token: allow the client %q the scope openid there; %w", s.ID, ErrEnded)
	}
	claims, err := claimsOf(text)
	switch {
	case err != nil:
		return Tokens{}, s.errorf("gives an ID token that no server takes: %w", err)
	case claims.Issuer != s.Issuer || !slices.Contains(claims.Audience, s.ID):
		return Tokens{}, s.errorf("gives an ID token that is not its own, or not for the client %q", s.ID)
	}
	return Tokens{ID: text, Refresh: t.RefreshToken}, nil
}

// claimsOf returns the claims of an ID token without verifying its signature. The error does
// not contain the token.
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

// ahead is how long before its expiry an ID token is replaced, at most a quarter of its life.
const ahead = 30 * time.Second

// Due returns when to replace an ID token, and when it expires; zero times if the text is no
// ID token.
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

package oidc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/portolan-mesh/portolan/discovery/identity"
	"github.com/portolan-mesh/portolan/discovery/identity/jwks"
	"github.com/portolan-mesh/portolan/storage/access"
)

const (
	// maxToken bounds the bytes of a token.
	maxToken = 16 << 10
	// Skew is how far clocks may differ.
	Skew = time.Minute
	// maxTries is how many keys are tried on a token.
	maxTries = 10
)

// An Issuer is a TokenIssuer of the mesh, by its name.
type Issuer struct {
	Name string
	Spec *access.TokenIssuer
}

// Keys returns the keys of issuers. A jwks.Fetcher is one.
type Keys interface {
	Keys(ctx context.Context, source jwks.Source, id string) (*jwks.Keys, error)
}

// Options configure a Verifier. Issuers, Keys and TrustDomain are required.
type Options struct {
	// Issuers returns the issuers trusted now, in a fixed order, or false if they are not
	// known yet.
	Issuers func() ([]Issuer, bool)
	Keys    Keys
	// TrustDomain is the trust domain of the workloads.
	TrustDomain string
	// Now is the clock; nil stands for time.Now.
	Now func() time.Time
}

// Verifier verifies tokens of the trusted issuers. It is an identity.Proof.
type Verifier struct{ o Options }

// New returns a Verifier.
func New(o Options) *Verifier {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Verifier{o}
}

// Is says whether a text looks like a JWT.
func Is(text string) bool { return strings.HasPrefix(text, "eyJ") && strings.Count(text, ".") == 2 }

// ErrUntrusted is the refusal of a token that no trusted issuer has signed. It is the same
// whatever is wrong with the token.
var ErrUntrusted = fmt.Errorf("%w: the token is not of an issuer that this mesh trusts, or its signature is not of a key of that issuer", identity.ErrUnproven)

// Verified is the verified content of a token.
type Verified struct {
	// Issuers are the trusted issuers that signed the token for one of their audiences.
	Issuers []Issuer
	Claims  map[string]any
	// Expires is when the token expires.
	Expires time.Time
}

// Verify verifies a token. It returns identity.ErrForeign for a text that is no JWT.
func (v *Verifier) Verify(ctx context.Context, token string) (*Verified, error) {
	if !Is(token) {
		return nil, identity.ErrForeign
	}
	if len(token) > maxToken {
		return nil, &identity.RefusedError{Err: ErrUntrusted, Detail: fmt.Sprintf("it has %d bytes, and may have %d", len(token), maxToken)}
	}
	parsed, err := jwt.ParseSigned(token, jwks.Algorithms())
	if err != nil {
		return nil, untrusted(err)
	}
	var claims struct {
		Issuer string `json:"iss"`
	}
	if err := parsed.UnsafeClaimsWithoutVerification(&claims); err != nil {
		return nil, untrusted(err)
	}
	all, known := v.o.Issuers()
	if !known {
		return nil, fmt.Errorf("%w: the configuration is not read yet", identity.ErrUnavailable)
	}
	var candidates []Issuer
	for _, one := range all {
		if one.Spec.Issuer == claims.Issuer {
			candidates = append(candidates, one)
		}
	}
	if len(candidates) == 0 {
		return nil, &identity.RefusedError{Err: ErrUntrusted, Detail: fmt.Sprintf("no TokenIssuer has the issuer %.200q", claims.Issuer)}
	}
	return v.verify(ctx, parsed, candidates)
}

// SourceOf returns where to fetch the keys of an issuer.
func SourceOf(issuer *access.TokenIssuer) jwks.Source {
	if issuer.JWKSURI != "" {
		return jwks.Source{URL: issuer.JWKSURI, CA: issuer.CA}
	}
	return jwks.Source{URL: issuer.Issuer, Discover: true, CA: issuer.CA}
}

// verify verifies a token that names the issuer of these candidates: several TokenIssuers may
// have the same issuer.
func (v *Verifier) verify(ctx context.Context, token *jwt.JSONWebToken, candidates []Issuer) (*Verified, error) {
	var refusals []error
	out := &Verified{}
	for _, one := range candidates {
		claims, expires, err := v.claims(ctx, token, one.Spec)
		if err != nil {
			refusals = append(refusals, err)
			continue
		}
		out.Issuers, out.Claims, out.Expires = append(out.Issuers, one), claims, expires
	}
	if len(out.Issuers) > 0 {
		return out, nil
	}
	for _, err := range refusals { // prefer the refusal that says most
		if errors.Is(err, identity.ErrUnproven) && !errors.Is(err, ErrUntrusted) {
			return nil, err
		}
	}
	return nil, refusals[0]
}

// claims returns the claims of a token, and when it expires. The issuer must have signed it,
// and it must be valid now.
func (v *Verifier) claims(ctx context.Context, token *jwt.JSONWebToken, issuer *access.TokenIssuer) (map[string]any, time.Time, error) {
	header := token.Headers[0]
	keys, err := v.o.Keys.Keys(ctx, SourceOf(issuer), header.KeyID)
	if err != nil {
		return nil, time.Time{}, &identity.RefusedError{Err: fmt.Errorf("%w: the keys of %s are not known: try again", identity.ErrUnavailable, issuer.Issuer), Detail: err.Error()}
	}
	var standard jwt.Claims
	all := map[string]any{}
	if !signed(token, keys.Find(header.KeyID, header.Algorithm), &standard, &all) {
		return nil, time.Time{}, &identity.RefusedError{Err: ErrUntrusted, Detail: fmt.Sprintf("no key of %s with the id %.100q has signed it", issuer.Issuer, header.KeyID)}
	}
	if why := v.refusal(&standard, issuer); why != "" {
		return nil, time.Time{}, fmt.Errorf("%w: the token of %s %s", identity.ErrUnproven, issuer.Issuer, why)
	}
	return all, standard.Expiry.Time(), nil
}

// signed says whether one of the keys has signed a token, and reads the claims into into.
func signed(token *jwt.JSONWebToken, keys []jose.JSONWebKey, into ...any) bool {
	for _, key := range keys[:min(len(keys), maxTries)] {
		if token.Claims(key, into...) == nil {
			return true
		}
	}
	return false
}

// refusal returns why a genuine token cannot be used, empty if it can.
func (v *Verifier) refusal(claims *jwt.Claims, issuer *access.TokenIssuer) string {
	now := v.o.Now()
	at := func(d *jwt.NumericDate) string { return d.Time().UTC().Format(time.RFC3339) }
	switch {
	case !slices.ContainsFunc(issuer.Audiences, claims.Audience.Contains):
		return fmt.Sprintf("is for another audience, and must be for %s", strings.Join(issuer.Audiences, " or "))
	case claims.Expiry == nil:
		return "does not say when it expires"
	case !now.Add(-Skew).Before(claims.Expiry.Time()):
		return "expired at " + at(claims.Expiry)
	case claims.NotBefore != nil && now.Add(Skew).Before(claims.NotBefore.Time()):
		return "is not valid before " + at(claims.NotBefore)
	case claims.IssuedAt != nil && now.Add(Skew).Before(claims.IssuedAt.Time()):
		return "was issued in the future, at " + at(claims.IssuedAt)
	}
	return ""
}

func untrusted(err error) error {
	return &identity.RefusedError{Err: ErrUntrusted, Detail: err.Error()}
}

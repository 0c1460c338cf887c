package identity

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"time"
)

// A Proof makes of a credential the identity that it proves, so that its holder gets a first
// certificate.
type Proof interface {
	// Prove returns the identity that a credential proves. The credential came from an
	// address, the zero one if that is not known. Prove may use the credential up: check
	// everything else about a request before.
	//
	// An error wraps one of the sentinels of this package. Its text may be shown to the
	// caller: it says exactly what is wrong to who has a genuine credential, and the same
	// to everybody who guesses. Reason has what an operator may know.
	Prove(ctx context.Context, credential string, from netip.Addr) (Identity, error)
}

var (
	// ErrUnproven: the credential proves nothing. Servers answer Unauthenticated, 401.
	ErrUnproven = errors.New("the credential proves no identity")
	// ErrForeign: the credential is not of the sort that this Proof takes; another may.
	// Servers answer it as ErrUnproven.
	ErrForeign = errors.New("no credential of a known sort")
	// ErrThrottled: too many credentials from this address proved nothing. Servers answer
	// ResourceExhausted, 429, and RetryAfter where they can.
	ErrThrottled = errors.New("too many credentials from this address proved nothing: try again in a minute")
	// ErrUnavailable: what decides cannot be reached, and the same credential may prove
	// an identity later. Servers answer Unavailable, 503.
	ErrUnavailable = errors.New("credentials cannot be checked at present")
)

// RefusedError is a refusal with a reason that its caller is not told.
type RefusedError struct {
	// Err is what the caller is told; it wraps a sentinel.
	Err error
	// Detail is what an operator may know beside it. It has no part of the credential.
	Detail string
}

// Error implements error, for the caller.
func (e *RefusedError) Error() string { return e.Err.Error() }

// Unwrap returns what the caller is told.
func (e *RefusedError) Unwrap() error { return e.Err }

// Reason is the text of a refusal for logs and the audit, with what its caller is not told.
func Reason(err error) string {
	if refused := (*RefusedError)(nil); errors.As(err, &refused) && refused.Detail != "" {
		return err.Error() + ": " + refused.Detail
	}
	return err.Error()
}

// ThrottledError is an ErrThrottled that passes.
type ThrottledError struct {
	// After is when: the address may try again then.
	After time.Duration
}

// Error implements error.
func (e *ThrottledError) Error() string {
	return fmt.Sprintf("too many credentials from this address proved nothing: try again in %d s", e.seconds())
}

// Unwrap returns ErrThrottled.
func (e *ThrottledError) Unwrap() error { return ErrThrottled }

func (e *ThrottledError) seconds() int { return int(math.Ceil(e.After.Seconds())) }

// RetryAfter is in how many seconds one who is refused may try again, for the header of that
// name; a minute where the error does not say.
func RetryAfter(err error) int {
	if throttled := (*ThrottledError)(nil); errors.As(err, &throttled) {
		return throttled.seconds()
	}
	return 60
}

// A Knower is a Proof that can tell from memory alone that a credential proves something.
type Knower interface {
	// Knows says whether a credential is known to prove an identity now. It waits for nothing
	// and uses nothing up; false says that Prove may find more, or less.
	Knows(credential string, from netip.Addr) bool
}

// Proofs is the first of several that takes a credential.
type Proofs []Proof

// Prove implements Proof.
func (p Proofs) Prove(ctx context.Context, credential string, from netip.Addr) (Identity, error) {
	for _, one := range p {
		if i, err := one.Prove(ctx, credential, from); !errors.Is(err, ErrForeign) {
			return i, err
		}
	}
	return Identity{}, ErrForeign
}

// Knows implements Knower.
func (p Proofs) Knows(credential string, from netip.Addr) bool {
	return slices.ContainsFunc(p, func(one Proof) bool { return knows(one, credential, from) })
}

// knows says whether a Proof is a Knower that knows a credential.
func knows(p Proof, credential string, from netip.Addr) bool {
	knower, ok := p.(Knower)
	return ok && knower.Knows(credential, from)
}

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

// A Proof verifies credentials that a workload uses to get its first certificate.
type Proof interface {
	// Prove returns the identity that a credential proves. from is the address that the
	// credential came from, the zero Addr if unknown. Prove may use the credential up, so
	// check everything else about a request before.
	//
	// An error wraps one of the sentinels of this package. Its text may be shown to the
	// caller: it tells the holder of a genuine credential exactly what is wrong, and tells
	// everybody else the same. Reason also returns what only an operator may know.
	Prove(ctx context.Context, credential string, from netip.Addr) (Identity, error)
}

var (
	// ErrUnproven: the credential proves nothing. Servers answer Unauthenticated, 401.
	ErrUnproven = errors.New("the credential proves no identity")
	// ErrForeign: this Proof does not handle credentials of this sort; another may. Servers
	// answer it as ErrUnproven.
	ErrForeign = errors.New("no credential of a known sort")
	// ErrThrottled: too many credentials from this address proved nothing. Servers answer
	// ResourceExhausted, 429, and RetryAfter where they can.
	ErrThrottled = errors.New("too many credentials from this address proved nothing: try again in a minute")
	// ErrUnavailable: the credential cannot be checked now, and may prove an identity later.
	// Servers answer Unavailable, 503.
	ErrUnavailable = errors.New("credentials cannot be checked at present")
)

// RefusedError is a refusal with details that the caller must not learn.
type RefusedError struct {
	// Err is the caller's error; it wraps a sentinel.
	Err error
	// Detail is additional text for an operator. It has no part of the credential.
	Detail string
}

// Error implements error. It returns the text for the caller.
func (e *RefusedError) Error() string { return e.Err.Error() }

// Unwrap returns the caller's error.
func (e *RefusedError) Unwrap() error { return e.Err }

// Reason returns the text of a refusal with its Detail, for logs and the audit.
func Reason(err error) string {
	if refused := (*RefusedError)(nil); errors.As(err, &refused) && refused.Detail != "" {
		return err.Error() + ": " + refused.Detail
	}
	return err.Error()
}

// ThrottledError is an ErrThrottled that says when to try again.
type ThrottledError struct {
	// After is how long the address must wait.
	After time.Duration
}

// Error implements error.
func (e *ThrottledError) Error() string {
	return fmt.Sprintf("too many credentials from this address proved nothing: try again in %d s", e.seconds())
}

// Unwrap returns ErrThrottled.
func (e *ThrottledError) Unwrap() error { return ErrThrottled }

func (e *ThrottledError) seconds() int { return int(math.Ceil(e.After.Seconds())) }

// RetryAfter returns the value of a Retry-After header for a refusal, in seconds; 60 if the
// error does not say.
func RetryAfter(err error) int {
	if throttled := (*ThrottledError)(nil); errors.As(err, &throttled) {
		return throttled.seconds()
	}
	return 60
}

// A Knower is a Proof that may recognize a credential from memory alone.
type Knower interface {
	// Knows says whether memory alone shows that a credential proves an identity now. It waits
	// for nothing and uses nothing up. If it returns false, only Prove can tell.
	Knows(credential string, from netip.Addr) bool
}

// Proofs tries several Proofs in order; the first that does not return ErrForeign decides.
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

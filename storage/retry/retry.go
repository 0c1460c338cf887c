// Package retry waits between the attempts of something that fails. Every
// back-off of Portolan is one of its three:
//
//	wait := retry.New(50*time.Millisecond, 5*time.Second)
//	for attempt(ctx) != nil && wait.Wait(ctx) == nil {
//	}
package retry

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Backoff is the wait before the next attempt. It doubles from the first wait to
// the longest. One goroutine uses it.
type Backoff struct{ waits backoff.ExponentialBackOff }

// New returns waits that are random by half, so that replicas do not come all at
// once.
func New(first, longest time.Duration) *Backoff { return newBackoff(first, longest, 0.5) }

// NewFair returns waits of anything between none and twice as long, so that
// rivals for the same key do not meet again.
func NewFair(first, longest time.Duration) *Backoff { return newBackoff(first, longest, 1) }

// NewExact returns waits without a random part, where nobody else waits for the
// same.
func NewExact(first, longest time.Duration) *Backoff { return newBackoff(first, longest, 0) }

func newBackoff(first, longest time.Duration, random float64) *Backoff {
	return &Backoff{backoff.ExponentialBackOff{
		InitialInterval: first, MaxInterval: longest, Multiplier: 2, RandomizationFactor: random,
	}}
}

// Next is how long to wait now; the next wait is longer.
func (b *Backoff) Next() time.Duration { return b.waits.NextBackOff() }

// Reset has the next wait be the first again.
func (b *Backoff) Reset() { b.waits.Reset() }

// Wait waits for Next. It returns the error of ctx if that ends meanwhile.
func (b *Backoff) Wait(ctx context.Context) error { return Sleep(ctx, b.Next()) }

// Sleep waits for d. It returns the error of ctx if that ends meanwhile.
func Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return ctx.Err()
	}
}

// Package retry waits between attempts. Every back-off of Portolan is made by one of its
// three constructors:
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

// New returns a Backoff with a jitter of half a wait, so that replicas do not retry all at
// once.
func New(first, longest time.Duration) *Backoff { return newBackoff(first, longest, 0.5) }

// NewFair returns a Backoff with a jitter of a whole wait, from none to twice as long, so
// that writers of the same key do not collide again.
func NewFair(first, longest time.Duration) *Backoff { return newBackoff(first, longest, 1) }

// NewExact returns a Backoff without jitter, for where nobody else waits for the same.
func NewExact(first, longest time.Duration) *Backoff { return newBackoff(first, longest, 0) }

func newBackoff(first, longest time.Duration, random float64) *Backoff {
	return &Backoff{backoff.ExponentialBackOff{
		InitialInterval: first, MaxInterval: longest, Multiplier: 2, RandomizationFactor: random,
	}}
}

// Next returns how long to wait now, and lengthens the next wait.
func (b *Backoff) Next() time.Duration { return b.waits.NextBackOff() }

// Reset makes the next wait the first one again.
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

package storage

import (
	"context"
	"fmt"
	"time"
)

// LeaseID names a lease of a Leaser. It is opaque; 0 is no lease.
type LeaseID int64

// OffLease in an operation takes its object from the lease that it is under: it stays until
// somebody deletes it.
const OffLease LeaseID = -1

// The bounds of the TTL of a lease, and the TTL of one that is granted with 0.
const (
	MinLease     = 3 * time.Second
	MaxLease     = 10 * time.Minute
	DefaultLease = 10 * time.Second
)

// Leaser is a Batcher whose objects can live as long as a lease.
//
// An operation with a Lease puts its object under that lease, and takes it from any lease that it
// was under: so a new holder takes an object over. One with OffLease takes it from its lease.
// Other writes of the object leave it under its lease. When a lease ends, the store deletes the
// objects under it, with their health, as one revision. It ends no lease before its TTL, and ends
// it soon after. While the store has no leader it ends none, and after an election every lease
// has its whole TTL.
//
// Only WorkloadEntries can be under a lease.
type Leaser interface {
	Batcher
	// Grant returns a new lease. A ttl of 0 stands for DefaultLease. One below MinLease or
	// above MaxLease is ErrInvalid. A fraction of a second counts as a second.
	Grant(ctx context.Context, ttl time.Duration) (LeaseID, error)
	// Renew gives a lease its whole TTL again. The error is ErrNotFound if the lease has ended.
	Renew(ctx context.Context, lease LeaseID) error
	// Revoke ends a lease at once. The error is ErrNotFound if it has ended already.
	Revoke(ctx context.Context, lease LeaseID) error
}

// LeaseTTL returns the TTL that Grant gives for a requested one, or an ErrInvalid.
func LeaseTTL(ttl time.Duration) (time.Duration, error) {
	switch {
	case ttl == 0:
		return DefaultLease, nil
	case ttl < MinLease || ttl > MaxLease:
		return 0, fmt.Errorf("%w: a lease of %v: its TTL is %v at least and %v at most", ErrInvalid, ttl, MinLease, MaxLease)
	}
	return (ttl + time.Second - 1).Truncate(time.Second), nil
}

// LeaseEnded is the message of the history about objects that went with their lease.
const LeaseEnded = "the lease of the object ended"

// LeaseOrigin is the Origin of the record of objects that went with their lease.
func LeaseOrigin() Origin { return Origin{User: "portolan", Message: LeaseEnded} }

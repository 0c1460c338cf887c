package storage

import (
	"context"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/status"
)

// StatusUpdate is a request to set conditions of an object.
type StatusUpdate struct {
	// Key names the object.
	Key config.Key
	// UID and ResourceVersion are preconditions, empty for none: the object's uid, and a revision
	// after which neither the object nor the conditions of clients have changed.
	UID, ResourceVersion string
	// Change returns the conditions of clients, given those that are there. It changes nothing
	// itself, and may be called several times. Its error is that of the update.
	Change func(known []status.ClientCondition) ([]status.ClientCondition, error)
}

// StatusKeeper is a store that keeps the conditions that clients set on objects beside them, so
// that they do not change the version of an object, nor its history.
type StatusKeeper interface {
	// SetConditions sets conditions of an object, and returns them with the revision at which
	// they were written. Conditions that do not change are not written. If the object does not
	// exist the error is an ErrNotFound, and if a precondition fails an ErrConflict. A deleted
	// object loses its conditions.
	SetConditions(ctx context.Context, update StatusUpdate) (*status.Clients, error)
}

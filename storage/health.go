package storage

import (
	"context"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/health"
)

// HealthUpdate asks for the health of a workload to be set.
type HealthUpdate struct {
	// Key names the object.
	Key config.Key
	// UID and ResourceVersion are preconditions, empty for none: the object's uid, and
	// the greater of the versions of the object and of its health.
	UID, ResourceVersion string
	// Report is the report to store; an Unknown one removes the health. The store sets
	// its owner and its revision. A zero Probed is now, and so is one in the future. A
	// zero Since is Probed, unless Healthy stays the same: then Since stays too.
	Report *health.Report
}

// HealthResult is the result of an update.
type HealthResult struct {
	// Revision is the version of the health afterwards; the object's if it has no
	// health.
	Revision string
	// Report is the stored report, nil if there never was one.
	Report *health.Report
	// Stale says that a newer report was there already, and nothing was written.
	Stale bool
}

// HealthKeeper is a store that keeps the health of workloads beside their
// objects, so that a change of either leaves the version of the other.
type HealthKeeper interface {
	// SetHealth stores a report on a workload. If its object does not exist the error is
	// an ErrNotFound, and if a precondition fails an ErrConflict. Of two reports the one
	// with the later Probed stands, in whatever order they come; a time in whole seconds
	// is compared in whole seconds. A report that changes nothing is not written. A
	// deleted object loses its health.
	SetHealth(ctx context.Context, update HealthUpdate) (HealthResult, error)
}

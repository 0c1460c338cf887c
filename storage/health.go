package storage

import (
	"context"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/health"
)

// HealthUpdate is a request to set the health of a workload.
type HealthUpdate struct {
	// Key names the object.
	Key config.Key
	// UID and ResourceVersion are preconditions, empty for none: the object's uid, and a revision
	// after which neither the object nor its health has changed.
	UID, ResourceVersion string
	// Report is the report to store; an Unknown one withdraws the earlier report. The store
	// sets its owner and its revision. A Probed that is zero or in the future becomes now.
	// A Since that is zero or after Probed becomes Probed. If Healthy stays as it was, so
	// does Since.
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

// HealthKeeper is a store that keeps the health of workloads beside their objects, so that
// a change of one does not change the version of the other.
type HealthKeeper interface {
	// SetHealth stores a report on a workload. If its object does not exist the error is an
	// ErrNotFound, and if a precondition fails an ErrConflict. Of two reports the one with
	// the later Probed wins, in whatever order they come; a time in whole seconds is
	// compared in whole seconds. A report that changes nothing is not written. A deleted
	// object loses its health.
	SetHealth(ctx context.Context, update HealthUpdate) (HealthResult, error)
}

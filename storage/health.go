package storage

import (
	"context"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/health"
)

// HealthUpdate asks for the health of a workload to be set.
type HealthUpdate struct {
	// Key is that of its object.
	Key config.Key
	// UID and ResourceVersion are conditions, empty for none: the object has this
	// uid, and the greater of its version and of that of its health is this.
	UID, ResourceVersion string
	// Report is what was found; an Unknown one takes back what is known. Whose it is and its
	// revision are left to the store. The zero Probed is now, and so is one in the
	// future. The zero Since is Probed; where Healthy is as before it stays.
	Report *health.Report
}

// HealthResult is what became of an update.
type HealthResult struct {
	// Revision is the version of the health afterwards, and that of the object where
	// it has none.
	Revision string
	// Report is what is stored now, nil where nothing ever was.
	Report *health.Report
	// Stale says that a newer report was there already, and nothing was written.
	Stale bool
}

// HealthKeeper is a store that keeps the health of workloads beside their
// objects, so that a change of either leaves the version of the other.
type HealthKeeper interface {
	// SetHealth stores what was found of a workload whose object exists, else it
	// is an ErrNotFound. Of two reports the one that was Probed later stands, in
	// whatever order they come; a time in whole seconds is compared as such. A
	// condition that does not hold is an ErrConflict. What is known already is not
	// written again. With the object goes its health.
	SetHealth(ctx context.Context, update HealthUpdate) (HealthResult, error)
}

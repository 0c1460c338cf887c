package serve

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/election"
	"github.com/portolan-mesh/portolan/storage/retry"
)

// leasePause is the pause after a failure.
const leasePause = time.Second

// A leaseRecorder writes into the history which objects went with their leases.
type leaseRecorder struct {
	store   *etcd.Store
	expired prometheus.Counter
	logger  *slog.Logger
}

func newLeaseRecorder(store *etcd.Store, metrics prometheus.Registerer, logger *slog.Logger) (*leaseRecorder, error) {
	r := &leaseRecorder{store: store, logger: logger, expired: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "portolan_registrations_expired_total", Help: "WorkloadEntries of machines that were deleted because their lease ended, as the leading server recorded them.",
	})}
	return r, metrics.Register(r.expired)
}

// run implements job.
func (r *leaseRecorder) run(ctx context.Context, leader *election.Leader) error {
	store := r.store.Fenced(leader.Client())
	for {
		err := store.RecordLeases(ctx, func(objects int) { r.expired.Add(float64(objects)) })
		if ctx.Err() != nil || errors.Is(err, election.ErrNotLeader) {
			return nil
		}
		r.logger.Warn("the ends of leases were not recorded, it will be tried again", "err", err, "after", leasePause)
		if retry.Sleep(ctx, leasePause) != nil {
			return nil
		}
	}
}

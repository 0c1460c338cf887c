package serve

import (
	"context"

	"github.com/portolan-mesh/portolan/storage/etcd/election"
	"github.com/portolan-mesh/portolan/xds/progress"
)

// statusWriter writes into the status of objects how far their changes have come.
type statusWriter struct{ progress.Writer }

// run implements job.
func (w *statusWriter) run(ctx context.Context, leader *election.Leader) error {
	return w.Run(ctx, leader)
}

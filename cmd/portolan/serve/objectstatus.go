package serve

import (
	"context"

	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/election"
	"github.com/portolan-mesh/portolan/xds/progress"
)

// statusWriter writes the progress of changes into the status of objects.
type statusWriter struct {
	store *etcd.Store
	progress.Writer
}

// run implements job.
func (w *statusWriter) run(ctx context.Context, leader *election.Leader) error {
	store := w.store.Fenced(leader.Client())
	return w.Run(ctx, store, store)
}

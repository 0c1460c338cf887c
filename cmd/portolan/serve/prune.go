package serve

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/election"
)

const (
	// The history keeps the newest keptChanges changes of every object, and those of a deleted
	// object for keptDeleted.
	keptChanges   = 20
	keptDeleted   = 30 * 24 * time.Hour
	pruneInterval = 10 * time.Minute
)

// A pruner keeps the records of history within bounds.
type pruner struct {
	store  *etcd.Store
	logger *slog.Logger
}

// run implements job.
func (p *pruner) run(ctx context.Context, leader *election.Leader) error {
	store := p.store.Fenced(leader.Client())
	ticker := time.NewTicker(pruneInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		removed, err := store.Prune(ctx, storage.Retention{Keep: keptChanges, Deleted: keptDeleted})
		switch {
		case ctx.Err() != nil || errors.Is(err, election.ErrNotLeader):
			return nil
		case err != nil:
			p.logger.Warn("history was not pruned, it will be tried again", "err", err, "after", pruneInterval)
		case removed > 0:
			p.logger.Info("history pruned", "records", removed)
		}
	}
}

package serve

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/portolan-mesh/portolan/discovery/lastknown"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/election"
)

const (
	// rememberPause is the pause after a failure.
	rememberPause = 10 * time.Second
	// lastSave is how long a stopping server may take to save the content of registries. Most is
	// saved before it stops: the rest of a first save of 100 MB takes some seconds.
	lastSave = 4 * time.Second
)

// A registrySaver saves the content of registries and clusters, for servers that start while
// the sources of these are away.
type registrySaver struct {
	store  *etcd.Store
	saver  *lastknown.Saver
	logger *slog.Logger
}

func newRegistrySaver(store *etcd.Store, sources func() []lastknown.Source, logger *slog.Logger) *registrySaver {
	return &registrySaver{store: store, logger: logger, saver: lastknown.NewSaver(lastknown.Options{Sources: sources, Logger: logger})}
}

// run implements job.
func (r *registrySaver) run(ctx context.Context, leader *election.Leader) error {
	store := r.store.Fenced(leader.Client())
	for {
		err := r.saver.Run(ctx, store)
		if err == nil || ctx.Err() != nil || errors.Is(err, election.ErrNotLeader) {
			return nil
		}
		r.logger.Warn("what registries know was not saved, it will be tried again", "err", err, "after", rememberPause)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(rememberPause):
		}
	}
}

// flush saves the current content of registries, within lastSave, if this server leads.
func (r *registrySaver) flush(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lastSave)
	defer cancel()
	if err := r.saver.Flush(ctx); err != nil {
		r.logger.Warn("the last changes of sources are not saved whole: a server that starts while they are away serves what was saved before, if anything was", "err", err)
	}
}
